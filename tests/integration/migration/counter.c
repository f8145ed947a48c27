/* The init of a guest that can tell whether a migration lost anything.
 *
 * Each 100 ms it writes one record of 512 bytes to the disk, and waits until it is there:
 * a number, its boot id, its clocks and a checksum. With dirty=N on the kernel's command
 * line it also rewrites N MiB of memory all the time.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define START (1024 * 1024)

struct record {
  char magic[8];
  uint64_t number;
  uint64_t monotonic_ns;
  uint64_t realtime_ns;
  char boot_id[40];
  char filler[432];
  uint64_t sum;
};

static const char *const MODULES[] = {"virtio", "virtio_ring", "virtio_pci_legacy_dev",
                                      "virtio_pci_modern_dev", "virtio_pci", "virtio_blk"};

static void load(const char *name) {
  char path[64];
  snprintf(path, sizeof path, "/modules/%s.ko", name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || syscall(SYS_finit_module, fd, "", 0)) printf("counter: no module %s\n", name);
  close(fd);
}

static uint64_t now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t sum(const struct record *r) {
  const unsigned char *bytes = (const unsigned char *)r;
  uint64_t hash = 14695981039346656037ull;
  for (size_t i = 0; i < sizeof *r - sizeof r->sum; i++) hash = (hash ^ bytes[i]) * 1099511628211ull;
  return hash;
}

static void read_text(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY);
  ssize_t got = read(fd, text, size - 1);
  text[got > 0 ? got : 0] = 0;
  text[strcspn(text, "\n")] = 0;
  close(fd);
}

static void rewrite_memory(size_t mib) {
  size_t size = mib << 20;
  volatile char *memory = malloc(size);
  for (unsigned round = 1;; round++)
    for (size_t at = 0; at < size; at += 4096) *(volatile unsigned *)(memory + at) = round;
}

static uint64_t next_number(int disk, struct record *r) {
  uint64_t number = 0;
  while (pread(disk, r, sizeof *r, START + number * sizeof *r) == sizeof *r &&
         !memcmp(r->magic, "SALTVIRT", 8))
    number++;
  return number;
}

int main(void) {
  static struct record r __attribute__((aligned(4096)));
  char command[512], boot_id[40];
  mount("proc", "/proc", "proc", 0, "");
  mount("dev", "/dev", "devtmpfs", 0, "");
  for (size_t i = 0; i < sizeof MODULES / sizeof *MODULES; i++) load(MODULES[i]);
  read_text("/proc/cmdline", command, sizeof command);
  read_text("/proc/sys/kernel/random/boot_id", boot_id, sizeof boot_id);
  char *dirty = strstr(command, "dirty=");
  if (dirty && atoi(dirty + 6) && !fork()) rewrite_memory(atoi(dirty + 6));
  int disk = -1;
  while ((disk = open("/dev/vda", O_RDWR | O_DIRECT | O_DSYNC)) < 0) usleep(10000);
  uint64_t number = next_number(disk, &r);
  for (;; number++) {
    memset(&r, 0, sizeof r);
    memcpy(r.magic, "SALTVIRT", 8);
    memcpy(r.boot_id, boot_id, sizeof boot_id);
    r.number = number;
    r.monotonic_ns = now(CLOCK_MONOTONIC);
    r.realtime_ns = now(CLOCK_REALTIME);
    memset(r.filler, (int)(number & 0xff), sizeof r.filler);
    r.sum = sum(&r);
    while (pwrite(disk, &r, sizeof r, START + number * sizeof r) != sizeof r) {
      printf("counter: write error at %llu\n", (unsigned long long)number);
      fflush(stdout);
      usleep(100000);
    }
    printf("counter %llu\n", (unsigned long long)number);
    fflush(stdout);
    usleep(100000);
  }
}
