package dir

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/secrets/storetest"
)

// countEnv makes the test binary a process that counts up in the store of that directory.
const (
	countEnv  = "SECRETS_DIR_TEST_COUNT"
	processes = 8
	counts    = 10
)

func TestMain(m *testing.M) {
	if path := os.Getenv(countEnv); path != "" {
		if err := count(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func count(path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	s, err := Open(path)
	if err != nil {
		return err
	}
	defer s.Close()
	return storetest.CountUp(ctx, s, "number", counts)
}

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Config{
		New: func(t *testing.T) func() secrets.Store {
			path := filepath.Join(t.TempDir(), "secrets")
			return func() secrets.Store {
				s, err := Open(path)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				return s
			}
		},
		Denied: func(t *testing.T) secrets.Store {
			s, path := open(t)
			drop(t, filepath.Join(path, "there"), "v", 0o600)
			if err := os.Chmod(path, 0o755); err != nil {
				t.Fatal(err)
			}
			return s
		},
	})
}

func TestProcessesTakeTurns(t *testing.T) {
	s, path := open(t)
	if _, err := s.Create(t.Context(), "number", secrets.NewValue([]byte("0")), nil); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range processes {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), countEnv+"="+path)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("a process that counts: %v: %s", err, out)
			}
		})
	}
	wg.Wait()
	got, err := s.Get(t.Context(), "number")
	if err != nil {
		t.Fatal(err)
	}
	if n := string(got.Value.Reveal()); n != strconv.Itoa(processes*counts) {
		t.Errorf("%d processes counted %d times each, to %s", processes, counts, n)
	}
}
