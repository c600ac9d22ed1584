//go:build unix && !linux

package lambda

import "syscall"

// sysProcAttr gives a function a process group of its own.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
