package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/dirstore"
	"github.com/clusterpass/clusterpass/shared/recording/policy"
	"github.com/clusterpass/clusterpass/shared/recording/storetest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// rules is a gateway.RecordingPolicies with the same rule for all sessions.
type rules policy.Rule

func (r rules) For(context.Context, policy.Call) (policy.Rule, error) { return policy.Rule(r), nil }

var (
	required   = rules{Level: policy.Required, RecordInput: true, Policy: "all"}
	bestEffort = rules{Level: policy.BestEffort, Policy: "all"}
)

// recordedBridge is a bridge that records the sessions of its member.
type recordedBridge struct {
	*bridgeServer
	audit *gatewaytest.AuditLog
	store *breakingStore
	keys  recording.Keys
}

// breakingStore is a directory that fails while isBroken is set.
type breakingStore struct {
	*dirstore.Store
	isBroken atomic.Bool
}

func (s *breakingStore) Put(ctx context.Context, id string, number int, part []byte) error {
	if s.isBroken.Load() {
		return errors.New("the disk is full")
	}
	return s.Store.Put(ctx, id, number, part)
}

func serveRecorded(t *testing.T, rule rules, l Limits, member http.HandlerFunc) *recordedBridge {
	t.Helper()
	return serveRechecked(t, rule, l, 0, member)
}

// serveRechecked is serveRecorded with a pause between checks of open sessions.
func serveRechecked(
	t *testing.T, rule gateway.RecordingPolicies, l Limits, recheck time.Duration, member http.HandlerFunc,
) *recordedBridge {
	t.Helper()
	signer, keys := storetest.NewSigner(t)
	dir, err := dirstore.Open(dirstore.Config{Path: filepath.Join(t.TempDir(), "recordings")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	rb := &recordedBridge{
		audit: &gatewaytest.AuditLog{}, store: &breakingStore{Store: dir}, keys: keys,
	}
	rb.bridgeServer = serveFresh(t, l, Drain{}, cluster.Freshness{}, member, func(b *Bridge, c *gateway.Config) {
		c.Recordings, c.Audit, c.Recheck = rule, audit.New(audit.Config{To: rb.audit}), recheck
		quiet := slog.New(slog.DiscardHandler)
		b.RecordTo(recording.New(recording.Config{Store: rb.store, Signer: signer}), quiet)
	})
	return rb
}

// recorded is the content of a recording.
type recorded struct {
	recording.Info
	events map[recording.Type]string
	isCut  bool
}

func (r recorded) String() string {
	return fmt.Sprintf("out %q, err %q, in %q, size %s, exit %s", r.events[recording.Output], r.events[recording.Stderr],
		r.events[recording.Input], r.events[recording.Resize], r.events[recording.Exit])
}

// recordings waits until all sessions have ended, and reads the verified recordings.
func (rb *recordedBridge) recordings() []recorded {
	rb.t.Helper()
	waittest.Until(rb.t, "all sessions have ended", rb.isIdle)
	ids, err := rb.store.List(rb.t.Context(), "")
	if err != nil {
		rb.t.Fatal(err)
	}
	var all []recorded
	for _, id := range ids {
		r, err := recording.Open(rb.t.Context(), rb.store, id, rb.keys)
		if err != nil {
			rb.t.Fatal(err)
		}
		one := recorded{Info: *r.Info(), events: map[recording.Type]string{}}
		for {
			e, err := r.Next(rb.t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			var fault *recording.Fault
			if errors.As(err, &fault) && fault.Kind == recording.Cut {
				one.isCut = true
				break
			}
			if err != nil {
				rb.t.Fatal(err)
			}
			one.events[e.Type] += string(e.Data)
			switch e.Type {
			case recording.Resize:
				one.events[e.Type] += fmt.Sprintf("%dx%d ", e.Width, e.Height)
			case recording.Transferred:
				one.events[e.Type] = fmt.Sprintf("in=%d out=%d", e.In, e.Out) // the last one counts all bytes
			}
		}
		all = append(all, one)
	}
	return all
}

func (rb *recordedBridge) onlyRecording() recorded {
	rb.t.Helper()
	all := rb.recordings()
	if len(all) != 1 {
		rb.t.Fatalf("%d recordings, want 1", len(all))
	}
	return all[0]
}

const recordedPath = "/clusters/m/api/v1/namespaces/a/pods/p/exec?command=sh&command=-l&container=c&stdin=1&stdout=1"
