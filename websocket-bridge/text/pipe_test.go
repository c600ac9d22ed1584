package text

import (
	"errors"
	"io"
	"testing"
	"time"
)

func TestHalvesOfAPipe(t *testing.T) {
	near, far := pipe()
	go func() {
		_, _ = io.WriteString(far, "all of it")
		_ = far.(half).CloseWrite()
	}()
	if got, err := io.ReadAll(near); err != nil || string(got) != "all of it" {
		t.Errorf("%q, %v", got, err)
	}
	go func() { _, _ = io.WriteString(near, "more") }()
	got := make([]byte, 4)
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "more" {
		t.Errorf("after the other half: %q, %v", got, err)
	}
	_ = near.SetDeadline(time.Unix(1, 0))
	if _, err := near.Write([]byte("x")); err == nil {
		t.Error("a write after its deadline succeeds")
	}
	_ = far.SetReadDeadline(time.Unix(1, 0))
	if _, err := far.Read(got); err == nil {
		t.Error("a read after its deadline succeeds")
	}
	_ = far.SetDeadline(time.Time{})
	_ = near.Close()
	if err := far.SetDeadline(time.Time{}); err != nil {
		t.Errorf("a deadline when the other side is closed: %v", err)
	}
	if _, err := far.Read(got); !errors.Is(err, io.EOF) {
		t.Errorf("the other side is closed: %v", err)
	}
	if _, err := far.Write(got); err == nil {
		t.Error("writing to a side that is closed succeeds")
	}
}
