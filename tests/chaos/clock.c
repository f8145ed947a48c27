/* The clock of the day, set by the seconds that /etc/chaos-clock says; all other clocks are true. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
  char text[32] = "";
  int kept = errno, fd = open("/etc/chaos-clock", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    if (read(fd, text, sizeof text - 1) < 0) text[0] = 0;
    close(fd);
  }
  errno = kept;
  return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *t) {
  int done = syscall(SYS_clock_gettime, clock, t);
  if (!done && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) t->tv_sec += offset();
  return done;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
  (void)zone;
  struct timespec now;
  int done = clock_gettime(CLOCK_REALTIME, &now);
  if (t) *t = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
  return done;
}

time_t time(time_t *seconds) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds) *seconds = now.tv_sec;
  return now.tv_sec;
}
