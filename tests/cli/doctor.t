$ millrace doctor --no-disk
system       Linux .* (re)
processor .* (re)
processors .* worker threads (re)
memory .* available (re)
lock limit .* (re)
pages .* (re)
io_uring .* (re)
device cuda  .* (re)
device cpu   usable: .* (re)
device sim   usable: .* (re)
...
# The affinity mask counts; so does the lock limit, and the remedy is named.
$ if [ "$(nproc)" -gt 1 ] && command -v taskset >/dev/null; then taskset -c "$(taskset -cp $$ | sed 's/.*[:] *\([0-9]*\).*/\1/')" millrace doctor --no-disk --json | grep -e '"affinity"' -e '"threads"'; else printf '    "affinity": 1,\n    "threads": 1\n'; fi
    "affinity": 1,
    "threads": 1
$ millrace doctor --disk-bytes 8MiB --json | grep -A 8 '"disk"'
  "disk": \{ (re)
    "path": ".",
    "bytes": 8388608,
    "seconds": .* (re)
    "gb_per_s": .* (re)
    "direct": (true|false), (re)
    "temporary_file": true
  },
  "devices": \[ (re)
$ ls -A
# A file that is large enough is read as it is.
$ millrace synth raw big --n 2100 -q >/dev/null; millrace doctor --disk-bytes 8MiB 2>/dev/null | grep -o 'an existing file'
an existing file
$ millrace doctor --path nowhere
millrace doctor: nowhere: cannot be opened as a folder: No such file or directory
[1]
$ millrace doctor somewhere
millrace doctor: somewhere: one argument too many: millrace doctor [options]
[2]
# Who this process is among the ranks, and what they could train by.
$ RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MILLRACE_MPI=/nowhere/libmpi.so MILLRACE_NCCL=/nowhere/libnccl.so millrace doctor --no-disk | grep -E '^(ranks|MPI|NCCL)'
ranks        this is rank 1 of 4 by env; local rank 1 of 2
MPI          comm: MILLRACE_MPI: /nowhere/libmpi.so: cannot open shared object file: No such file or directory
NCCL         comm: no NCCL: /nowhere/libnccl.so: cannot open shared object file: .* (re)
$ OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 MILLRACE_MPI=/nowhere/libmpi.so millrace doctor --no-disk | grep 'no MPI library is found'
! openmpi started this rank, and no MPI library is found
