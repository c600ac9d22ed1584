package lambda

import "syscall"

// sysProcAttr gives a function a process group of its own, and lets it die with this process.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
