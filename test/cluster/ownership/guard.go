package ownership

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
)

// Guard runs the keeper, which is this program with guarded in its environment, and returns its exit code. Then it
// kills remaining processes and removes the run directory name.
func Guard(name, guarded string) (int, error) {
	if err := Adopt(); err != nil {
		return 0, err
	}
	// Pdeathsig counts the starting thread's death, so this goroutine stays on one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	keeper := exec.Command("/proc/self/exe", os.Args[1:]...)
	keeper.Args[0] = os.Args[0]
	keeper.Env = append(os.Environ(), guarded)
	keeper.Stdin, keeper.Stdout, keeper.Stderr = os.Stdin, os.Stdout, os.Stderr
	keeper.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	if err := keeper.Start(); err != nil {
		return 0, fmt.Errorf("start the keeper: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- keeper.Wait() }()

	var err error
	for waiting := true; waiting; {
		select {
		case <-signals:
			_ = keeper.Process.Signal(syscall.SIGTERM)
		case err = <-ended:
			waiting = false
		}
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("wait for the keeper: %w", err)
	}
	return keeper.ProcessState.ExitCode(), errors.Join(KillDescendants(), removeAbandoned(name))
}

func removeAbandoned(name string) error {
	path := filepath.Join(Root(), name)
	if gone(path) {
		return nil
	}
	root, err := lockRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	defer removeRoot()
	if gone(path) {
		return nil
	}
	lock, err := tryLock(path)
	if lock == nil {
		return err
	}
	defer lock.Close()
	return os.RemoveAll(path)
}
