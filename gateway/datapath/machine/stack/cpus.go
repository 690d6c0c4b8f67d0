package stack

import "golang.org/x/sys/unix"

// AwaitCPUs waits some 10 ms, until each CPU has finished with the packets that it was handling. If that is not
// supported, it returns at once.
func AwaitCPUs() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL of linux/membarrier.h: waits for RCU's quiescent states
	unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
}
