package dir

import (
	"path/filepath"
	"testing"

	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/objects/storetest"
	"github.com/clusterpass/clusterpass/shared/storesuite"
)

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Config{
		Config: storesuite.Config[objects.Store]{New: func(t *testing.T) func() objects.Store {
			path := filepath.Join(t.TempDir(), "objects")
			return func() objects.Store {
				s, err := Open(path)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				return s
			}
		}},
		Compact: func(t *testing.T, st objects.Store, to uint64) {
			if err := st.(*Store).Compact(t.Context(), to); err != nil {
				t.Fatal(err)
			}
		},
	})
}

func TestProcessesTakeTurns(t *testing.T) {
	s, path := openTemp(t, defaultHistory)
	storetest.CountInProcesses(t, s, path)
}
