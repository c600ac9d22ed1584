package kubelet

import (
	"bytes"
	"os"
	"testing"
	"time"
)

// TestDrainTakesWhatIsThere: all output must arrive, although a background process keeps the pipe open, and also on a
// busy machine.
func TestDrainTakesWhatIsThere(t *testing.T) {
	for _, quiet := range []time.Duration{0, time.Nanosecond, 10 * time.Millisecond} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		want := bytes.Repeat([]byte("x"), 50_000) // more than one read, less than the capacity of a pipe
		if _, err := w.Write(want); err != nil {
			t.Fatal(err)
		}
		exited := make(chan struct{})
		close(exited)
		var got bytes.Buffer
		if err := drain(&got, r, exited, quiet); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("after a silence of %s: %d of %d bytes, %v", quiet, got.Len(), len(want), err)
		}
		_, _ = r.Close(), w.Close()
	}
}
