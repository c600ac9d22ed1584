package members

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

// TestSlowListEnds fails if a member could make a list last forever, or if a slow client ended it.
func TestSlowListEnds(t *testing.T) {
	const head = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[`
	object := `{"metadata":{"name":"` + strings.Repeat("x", 1000) + `"}}`
	for name, tt := range map[string]struct {
		every, client time.Duration // between two objects of the member, and of the client
		rest          time.Duration // before each thousandth
		objects       int           // until the list is whole
		slow          bool
	}{
		"an object a minute":        {every: 50 * time.Second, objects: 100, slow: true},
		"an object a second":        {every: time.Second, objects: 10_000, slow: true},
		"nothing more":              {every: time.Hour, objects: 2, slow: true},
		"100 KB/s":                  {every: 10 * time.Millisecond, objects: 20_000},
		"8 MB/s":                    {every: 125 * time.Microsecond, objects: 20_000},
		"8 MB/s with rests":         {every: 125 * time.Microsecond, rest: 50 * time.Second, objects: 5000},
		"a client that reads badly": {client: 10 * time.Minute, objects: 300},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body, member := io.Pipe()
				ctx, cancel := context.WithCancel(t.Context())
				stop := context.AfterFunc(ctx, func() { _ = member.CloseWithError(context.Canceled) }) // as net/http does
				defer stop()
				var wrote sync.WaitGroup
				wrote.Go(func() {
					_, err := io.WriteString(member, head)
					for i := 0; i < tt.objects && err == nil; i++ {
						time.Sleep(tt.every)
						if i%1000 == 999 {
							time.Sleep(tt.rest)
						}
						if i > 0 {
							_, err = io.WriteString(member, ",")
						}
						if err == nil {
							_, err = io.WriteString(member, object)
						}
					}
					if err == nil {
						_, _ = io.WriteString(member, "]}")
						_ = member.Close()
					}
				})
				began := time.Now()
				s, err := merge.Open("a", NewPacedReader(&Answer{Body: body, Stop: cancel}))
				for err == nil {
					time.Sleep(tt.client)
					_, err = s.Next()
				}
				_ = body.Close()
				says := fmt.Sprintf("%d objects in %v: %v", s.Read, time.Since(began), err)
				if tt.slow && (!errors.Is(err, errTooSlow) || time.Since(began) > 2*StallTimeout || ctx.Err() == nil) {
					t.Error(says)
				}
				if !tt.slow && (!errors.Is(err, io.EOF) || s.Read != tt.objects || ctx.Err() != nil) {
					t.Error(says)
				}
				cancel()
				wrote.Wait()
			})
		})
	}
}
