/* The program of this program's name, in ROOT: `chroot ROOT NAME ...` without a shell, since tests and Aliquot start
 * scontrol some 30,000 times a run. It keeps the working directory if ROOT has it, as it has /tmp. A job runs in ROOT
 * already, where no such folder is. */
#include <libgen.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **words)
{
    static const char *const folders[] = {"/usr/sbin", "/usr/bin", "/sbin", "/bin"};
    char path[4096], here[4096];
    const char *directory = getcwd(here, sizeof(here));
    const char *name = count ? basename(words[0]) : "";
    if (!access(ROOT, F_OK) && (chroot(ROOT) || ((!directory || chdir(directory)) && chdir("/")))) {
        perror(ROOT);
        return 126;
    }
    for (unsigned n = 0; n < sizeof(folders) / sizeof(*folders); n++) {
        snprintf(path, sizeof(path), "%s/%s", folders[n], name);
        words[0] = path;
        execv(path, words);
    }
    perror(name);
    return 127;
}
