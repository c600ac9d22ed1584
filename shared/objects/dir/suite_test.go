package dir

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/objects/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Config{
		New: func(t *testing.T) func() objects.Store {
			path := filepath.Join(t.TempDir(), "objects")
			return func() objects.Store {
				s, err := Open(path)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				return s
			}
		},
		Compact: func(t *testing.T, st objects.Store, to uint64) {
			if err := st.(*Store).Compact(t.Context(), to); err != nil {
				t.Fatal(err)
			}
		},
	})
}

func TestProcessesTakeTurns(t *testing.T) {
	const processes = 8
	s, path := openTemp(t, defaultHistory)
	if _, err := s.Create(t.Context(), "races/number", []byte("0")); err != nil {
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
	got, err := s.Get(t.Context(), "races/number")
	if err != nil {
		t.Fatal(err)
	}
	if want := strconv.Itoa(processes * counts); string(got.Value) != want || got.Revision != processes*counts+1 {
		t.Errorf("counted to %s at revision %d, want %s", got.Value, got.Revision, want)
	}
}
