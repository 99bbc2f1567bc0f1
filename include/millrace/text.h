/*
 * Texts from outside (file names, URLs, command lines) made fit to be shown or stored.
 *
 *     char shown[256];
 *     mr_text_hide("curl --token abc", shown, sizeof shown); // curl --token ***
 *     puts(mr_text_printable(shown));
 *
 * Threads: both functions may be called from any thread, and allocate nothing.
 */
#ifndef MILLRACE_TEXT_H
#define MILLRACE_TEXT_H

#include <millrace/error.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Replaces what a terminal would obey or show wrongly by question marks: control characters (C0
 * except tab, DEL, C1), characters that change the direction of text (U+061C, U+200E, U+200F,
 * U+202A to U+202E, U+2066 to U+2069), and bytes that are not UTF-8.
 * text: changed in place; it never gets longer. Returns text.
 */
MR_API char *mr_text_printable(char *text);

/*
 * Copies a text without its credentials. User and password of an http, https or s3 URL become
 * "***", query and fragment of an http or https URL "?...". The value in NAME=VALUE, "NAME: VALUE"
 * and "--NAME VALUE" becomes "***" if NAME is that of a secret: its last word is token, password,
 * secret, auth or similar. Paths that are not URLs do not change.
 * text: a URI, a message or a command line of any length.
 * [out] buf: cap bytes, cut to fit, NUL-terminated. cap: at least 1. Returns buf.
 */
MR_API const char *mr_text_hide(const char *text, char *buf, size_t cap);

#ifdef __cplusplus
}
#endif
#endif
