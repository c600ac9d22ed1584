package storesuite

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// programEnv names the Program that a test binary runs instead of its tests, dirEnv the directory of its store.
const (
	programEnv = "CLUSTERPASS_STORESUITE_PROGRAM"
	dirEnv     = "CLUSTERPASS_STORESUITE_DIR"
)

// Program is what a test runs in another process, on the store in dir.
type Program func(ctx context.Context, dir string) error

// CountProgram is the name of the Program that CountInProcesses starts. It must call CountUp with CountsEach.
const (
	CountProgram = "count"
	CountsEach   = 10
)

// programTimeout is enough for a machine that is busy with other tests.
const programTimeout = 5 * time.Minute

// Main is the TestMain of a package that starts its test binary as a Program. It does not return.
func Main(m *testing.M, programs map[string]Program) {
	program, ok := programs[os.Getenv(programEnv)]
	if !ok {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithTimeout(context.Background(), programTimeout)
	err := program(ctx, os.Getenv(dirEnv))
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Command returns the command that runs a Program of Main on the store in dir, until the test ends.
func Command(t *testing.T, program, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // the test binary itself
	cmd.Env = append(os.Environ(), programEnv+"="+program, dirEnv+"="+dir)
	return cmd
}

// CountInProcesses has eight processes increment one number in the empty store st in dir, and returns its record. An
// increment is lost if processes do not exclude each other.
func (k Kind) CountInProcesses(t *testing.T, st Store, dir string) Record {
	t.Helper()
	mustCreate(t, st, counter, "0")
	var wg sync.WaitGroup
	for range Writers {
		wg.Go(func() {
			if out, err := Command(t, CountProgram, dir).CombinedOutput(); err != nil {
				t.Errorf("a process that counts: %v: %s", err, out)
			}
		})
	}
	wg.Wait()
	return wantCount(t, st, Writers*CountsEach)
}
