/* Mistakes on purpose: each must end the process when this file is compiled with the sanitisers of the Makefile. */
#include <stdint.h>
#include <stdlib.h>

/* Reads the word after the last one. */
int64_t read_beyond(int64_t count)
{
    int64_t *words = calloc((size_t)count, sizeof *words);
    const int64_t beyond = ((volatile int64_t *)words)[count];
    free(words);
    return beyond;
}

/* Writes the word before the first one. */
int64_t write_before(int64_t count)
{
    int64_t *words = calloc((size_t)count, sizeof *words);
    ((volatile int64_t *)words)[-1] = count;
    free(words);
    return 0;
}

/* Reads a word after its memory was given back. */
int64_t read_after_free(int64_t count)
{
    int64_t *words = calloc((size_t)count, sizeof *words);
    free(words);
    return *(volatile int64_t *)words;
}

/* INT64_MAX + count. */
int64_t overflow(int64_t count)
{
    volatile int64_t most = INT64_MAX;
    return most + count;
}

/* Shifts a word by its width and more. */
int64_t shift(int64_t count)
{
    volatile int64_t width = 63 + count;
    return (int64_t)((uint64_t)count << width);
}

/* Reads a word from where none may lie. */
int64_t misaligned(int64_t count)
{
    char *bytes = calloc((size_t)count + 1, sizeof(int64_t));
    const int64_t word = *(volatile int64_t *)(bytes + 1);
    free(bytes);
    return word;
}

/* No mistake. */
int64_t sound(int64_t count)
{
    return count;
}
