package build

import (
	"os/exec"
	"runtime"
	"syscall"
)

// during starts cmd, has use run while it does, and waits for it. The command is killed when this process dies,
// however it does; the system counts the death of the starting thread as the process's, hence the lock.
func during(cmd *exec.Cmd, use func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	use()
	return cmd.Wait()
}
