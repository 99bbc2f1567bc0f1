# On the driver that is not there: two GPUs, 310 MiB a context, two other processes.
$ CUDA_MPS_PIPE_DIRECTORY=none millrace doctor --no-disk | sed -n '/^cuda:1/,$p'
cuda:1  +Fake GPU 1, .* (re)
...
  host        nearest memory node unknown; 3 copy engines
  processes   a context takes 310 MiB; 2 others: pid 4242 (memory unknown), pid 4243 (512 MiB)
...
MPS           not running (none): processes that share a GPU take turns
...
! 2 other processes use cuda:0, and without MPS they take turns: neither copies nor kernels overlap
  fix: nvidia-cuda-mps-control -d (before they start), or another GPU for each
...
! CUDA_MPS_PIPE_DIRECTORY names none, where no MPS daemon has its pipes
  fix: unset CUDA_MPS_PIPE_DIRECTORY, or: nvidia-cuda-mps-control -d
# A daemon is there; one that has ended has left its pipes.
$ mkdir m; touch m/control; echo $$ > m/nvidia-cuda-mps-control.pid; CUDA_MPS_PIPE_DIRECTORY=m millrace doctor --no-disk | grep -e '^MPS' -e '[!].*MPS'
MPS           its control daemon is running (m): processes use a GPU at the same time; a fault in one ends them all
$ echo 4194999 > m/nvidia-cuda-mps-control.pid; CUDA_MPS_PIPE_DIRECTORY=m millrace doctor --no-disk | grep -e '^MPS' -e '[!].*daemon'
MPS           not running (m has an ended daemon's pipes): processes that share a GPU take turns
! m has the pipes of an MPS daemon that has ended
$ CUDA_MPS_PIPE_DIRECTORY=none millrace doctor --no-disk --json > d.json; for k in numa_distance context_bytes peer_gb_per_s processes; do grep -c "^      \"$k\":" d.json; done; grep -A 4 '"mps"' d.json; grep -m 1 -A 9 '"processes"' d.json
2
2
2
2
  "mps": {
    "running": false,
    "pipes": false,
    "directory": "none"
  },
      "processes": [
        {
          "pid": 4242,
          "bytes": 0
        },
        {
          "pid": 4243,
          "bytes": 536870912
        }
      ],
