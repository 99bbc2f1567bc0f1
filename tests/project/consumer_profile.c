/* A user's program with libmillrace-profile: an error of that library comes out of libmillrace's
 * mr_last_error(). */
#include <millrace/profile.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    struct mr_recording *recording;
    int rc = mr_recording_open("no-such-recording.sqlite", &recording);
    printf("%d: %s\n", rc, mr_last_error());
    return rc < 0 && strstr(mr_last_error(), "no-such-recording.sqlite") ? 0 : 1;
}
