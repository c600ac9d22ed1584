package dir

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/secrets/storetest"
	"github.com/clusterpass/clusterpass/shared/storesuite"
)

func TestMain(m *testing.M) {
	storesuite.Main(m, map[string]storesuite.Program{storesuite.CountProgram: count})
}

func count(ctx context.Context, dir string) error {
	s, err := Open(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	return storetest.CountUp(ctx, s)
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
			drop(t, filepath.Join(path, storesuite.SampleName), "v", 0o600)
			if err := os.Chmod(path, 0o755); err != nil {
				t.Fatal(err)
			}
			return s
		},
	})
}

func TestProcessesTakeTurns(t *testing.T) {
	s, path := open(t)
	storetest.CountInProcesses(t, s, path)
}
