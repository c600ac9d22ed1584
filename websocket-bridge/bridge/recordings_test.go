package bridge

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/dirstore"
	"github.com/clusterpass/clusterpass/shared/recording/location"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// TestConfiguredRetention fails if a bridge does not enforce the limits of its configuration, so that recordings stay
// for ever or fill the disk.
func TestConfiguredRetention(t *testing.T) {
	for name, cfg := range map[string]Recordings{"age": {MaxAge: time.Hour}, "size": {MaxBytes: 32 << 10}} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "recordings")
			store, err := dirstore.Open(dirstore.Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			begun := time.Now().Add(-2 * time.Hour)
			old, last := recording.NewID(begun), recording.NewID(time.Now())
			for _, id := range []string{old, last} {
				if err := store.Put(t.Context(), id, 0, []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{recording.PartName(0), ""} {
				if err := os.Chtimes(filepath.Join(path, old, name), begun, begun); err != nil {
					t.Fatal(err)
				}
			}
			i := clustertest.NewInstallation(t)
			cfg.Location = location.Location{Kind: location.Dir, Where: path}
			h := &Handler{}
			defer func() { _ = h.Close() }()
			err = h.openRecordings(t.Context(), New(Limits{}), &assembly.Parts{
				Stores: &stores.Stores{Secrets: i.Secrets, Objects: i.Objects}, Log: slog.New(slog.DiscardHandler),
			}, cfg)
			if err != nil {
				t.Fatal(err)
			}
			waittest.Until(t, "the old recording is deleted", func() bool {
				ids, err := store.List(t.Context(), "")
				return err == nil && slices.Equal(ids, []string{last})
			})
		})
	}
}

// failingSecrets is a secret store whose first reads fail.
type failingSecrets struct {
	secrets.Store
	failures atomic.Int64
}

func (s *failingSecrets) Get(ctx context.Context, name string) (*secrets.Secret, error) {
	if s.failures.Add(-1) >= 0 {
		return nil, errors.New("the secret store is down")
	}
	return s.Store.Get(ctx, name)
}

// TestRecordingsBeginAfterAnOutage fails if a bridge that started during an outage of the secret store refuses sessions
// whose recording is required for ever.
func TestRecordingsBeginAfterAnOutage(t *testing.T) {
	i := clustertest.NewInstallation(t)
	sec := &failingSecrets{Store: i.Secrets}
	sec.failures.Store(2)
	dir := filepath.Join(t.TempDir(), "recordings")
	synctest.Test(t, func(t *testing.T) {
		log, h, begun := &waittest.Buffer{}, &Handler{}, time.Now()
		err := h.openRecordings(t.Context(), New(Limits{}), &assembly.Parts{
			Stores: &stores.Stores{Secrets: sec, Objects: i.Objects}, Log: slog.New(slog.NewTextHandler(log, nil)),
		}, Recordings{Location: location.Location{Kind: location.Dir, Where: dir}})
		if err != nil {
			t.Fatal(err)
		}
		for !strings.Contains(log.String(), "sessions can be recorded now") && time.Since(begun) < time.Minute {
			time.Sleep(time.Second)
		}
		took, n := time.Since(begun), strings.Count(log.String(), "sessions cannot be recorded yet")
		if took > 2*keyRetry+time.Second || n != 2 {
			t.Errorf("after %s, %d attempts have failed, want 2: %s", took, n, log)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}
