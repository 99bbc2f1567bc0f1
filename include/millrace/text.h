/*
 * Texts from elsewhere (names of files, URLs, command lines) made fit to be shown or stored.
 *
 * Threads: both functions may be called from any thread; they allocate nothing.
 */
#ifndef MILLRACE_TEXT_H
#define MILLRACE_TEXT_H

#include <millrace/error.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Makes question marks of what a terminal obeys or shows wrongly: control characters (C0 but tabs, DEL, C1), those that
 * change the direction of text (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069), and bytes that are not UTF-8.
 * text: changed in place, never longer. Returns text.
 */
MR_API char *mr_text_printable(char *text);

/*
 * Writes a text without its credentials: user and password of an http, https or s3 URL become "***", query and fragment of
 * an http or https URL "?..."; the value of NAME=VALUE, "NAME: VALUE" and "--NAME VALUE" becomes "***" where NAME is that of a
 * secret (its last word is token, password, secret, auth or the like).
 * text: a URI, a message or a command line; any length. Paths that are no URLs stay as they are.
 * [out] buf: cap bytes, cut to fit, always ended by 0. cap: >= 1. Returns buf.
 */
MR_API const char *mr_text_hide(const char *text, char *buf, size_t cap);

#ifdef __cplusplus
}
#endif
#endif
