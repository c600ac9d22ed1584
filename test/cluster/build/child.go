package build

import (
	"os/exec"
	"runtime"
	"syscall"
)

// during calls use while cmd runs. cmd is killed when this process dies. The system counts the end of the starting
// thread as that death, so the thread is locked.
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
