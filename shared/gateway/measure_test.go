package gateway

import (
	"testing"
	"testing/synctest"
	"time"
)

// Requests like a slow one must not occupy a process for most of its time.
func TestSlowRequestsOccupyATwentiethOfTheTime(t *testing.T) {
	for _, tt := range []struct {
		name              string
		lasts, redirected time.Duration
	}{
		{"in time", FirstByte - 1, 0},
		{"a slow read", FirstByte, 100 * time.Second},
		{"the longest write", 29 * time.Second, 580 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := NewFunction("")
				end := f.measure("key")
				time.Sleep(tt.lasts)
				end()
				time.Sleep(tt.redirected - 1)
				if got, want := f.slow.has("key"), tt.redirected > 0; got != want {
					t.Errorf("redirected: %v, want %v", got, want)
				}
				time.Sleep(time.Nanosecond)
				if f.slow.has("key") {
					t.Error("it is redirected for longer")
				}
			})
		})
	}
}
