package filelock

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func openRoot(t *testing.T) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func TestExclusive(t *testing.T) {
	root := openRoot(t)
	var holders, n atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				f, err := Lock(t.Context(), root, "lock", Exclusive)
				if err != nil {
					t.Error(err)
					return
				}
				if h := holders.Add(1); h != 1 {
					t.Errorf("%d hold the lock", h)
				}
				n.Add(1)
				runtime.Gosched()
				holders.Add(-1)
				_ = f.Close()
			}
		})
	}
	wg.Wait()
	if n.Load() != 160 {
		t.Errorf("the lock was held %d times, want 160", n.Load())
	}
}

func TestSharedExcludesExclusive(t *testing.T) {
	root := openRoot(t)
	for range 2 {
		f, err := Lock(t.Context(), root, "lock", Shared)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	if _, err := try(root, "lock", Exclusive); err == nil {
		t.Error("an exclusive lock beside shared ones")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Lock(ctx, root, "lock", Exclusive); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context ended", err)
	}
}

func TestALockOnARemovedFileIsNone(t *testing.T) {
	root := openRoot(t)
	old, err := Lock(t.Context(), root, "lock", Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := root.Remove("lock"); err != nil {
		t.Fatal(err)
	}
	held, err := Lock(t.Context(), root, "lock", Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := try(root, "lock", Exclusive); err == nil {
		t.Error("two hold the lock on the new file")
	}
}
