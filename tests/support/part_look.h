/* Reads parts for tests, in the plainest way: every whole record of every part in a folder. */
#ifndef PART_LOOK_H
#define PART_LOOK_H

#include "recording/part.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct part_look {
    struct mr_part_header header;
    char *data; /* the whole file */
    size_t bytes;
    bool cut;                    /* it ends in the middle of a chunk */
    uint64_t n[MR_N_PART_TYPES]; /* records of each type */
    char *of[MR_N_PART_TYPES];   /* and the records, one after the other; strings: NULL */
    size_t of_bytes[MR_N_PART_TYPES];
    char *text[65536]; /* by number; NULL: unknown */
};

static inline void part_look_take(struct part_look *look, const struct mr_part_chunk *chunk,
                                  const char *records)
{
    if (chunk->type == MR_PART_STRING) {
        for (uint32_t i = 0; i < chunk->n; i++) {
            struct mr_part_string head;
            memcpy(&head, records, sizeof head);
            if (head.id < 65536)
                look->text[head.id] = strndup(records + sizeof head, head.bytes);
            records += sizeof head + ((head.bytes + 7) & ~7u);
        }
    } else {
        size_t old = look->of_bytes[chunk->type];
        char *more = realloc(look->of[chunk->type], old + chunk->bytes + 1);
        if (!more)
            abort();
        memcpy(more + old, records, chunk->bytes);
        look->of[chunk->type] = more;
        look->of_bytes[chunk->type] += chunk->bytes;
    }
    look->n[chunk->type] += chunk->n;
}

/* False: no part at all. */
static inline bool part_look_read(const char *path, struct part_look *look)
{
    memset(look, 0, sizeof *look);
    FILE *file = fopen(path, "rb");
    if (!file)
        return false;
    fseek(file, 0, SEEK_END);
    look->bytes = (size_t)ftell(file);
    rewind(file);
    look->data = malloc(look->bytes + 1);
    bool whole = look->data && fread(look->data, 1, look->bytes, file) == look->bytes;
    fclose(file);
    if (!whole || look->bytes < sizeof look->header)
        return false;
    memcpy(&look->header, look->data, sizeof look->header);
    if (memcmp(look->header.magic, MR_PART_MAGIC, 8) != 0)
        return false;
    size_t at = look->header.header_bytes;
    while (at < look->bytes) {
        struct mr_part_chunk chunk;
        if (at + sizeof chunk > look->bytes) {
            look->cut = true;
            break;
        }
        memcpy(&chunk, look->data + at, sizeof chunk);
        if (chunk.magic != MR_PART_CHUNK || chunk.type >= MR_N_PART_TYPES)
            return false;
        at += sizeof chunk;
        if (at + chunk.bytes > look->bytes) {
            look->cut = true;
            break;
        }
        part_look_take(look, &chunk, look->data + at);
        at += chunk.bytes;
    }
    return true;
}

static inline void part_look_free(struct part_look *look)
{
    free(look->data);
    for (size_t i = 0; i < MR_N_PART_TYPES; i++)
        free(look->of[i]);
    for (size_t i = 0; i < 65536; i++)
        free(look->text[i]);
}

/* Reads all parts of a folder; returns how many, at most max. */
static inline int part_look_folder(const char *folder, struct part_look *looks, int max)
{
    int n = 0;
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && n < max && (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name);
        char path[4200];
        if (length < 5 || strcmp(entry->d_name + length - 5, ".part") != 0)
            continue;
        snprintf(path, sizeof path, "%.3800s/%.300s", folder, entry->d_name);
        n += part_look_read(path, &looks[n]);
    }
    if (dir)
        closedir(dir);
    return n;
}

/* The value of the note of this name; -1: there is none. */
static inline int64_t part_look_note(const struct part_look *look, const char *name,
                                     const char **out_text)
{
    for (uint64_t i = 0; i < look->n[MR_PART_NOTE]; i++) {
        struct mr_part_note note;
        memcpy(&note, look->of[MR_PART_NOTE] + i * sizeof note, sizeof note);
        if (note.name < 65536 && look->text[note.name] &&
            strcmp(look->text[note.name], name) == 0) {
            if (out_text)
                *out_text = note.text && note.text < 65536 ? look->text[note.text] : NULL;
            return note.value;
        }
    }
    return -1;
}

#endif
