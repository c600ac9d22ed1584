package audit

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

var noCredential = status.New(status.Unauthenticated, "", "no credential")

func sum(t *testing.T, b []byte) (written, stand int) {
	t.Helper()
	for _, e := range events(t, b) {
		annotations, _ := e["annotations"].(map[string]any)
		n := 1
		if count, ok := annotations[CountAnnotation].(string); ok {
			var err error
			if n, err = strconv.Atoi(count); err != nil {
				t.Fatal(err)
			}
		}
		written, stand = written+1, stand+n
	}
	return written, stand
}

// An operator must see an attack, and the attack must not fill the disk.
func TestUnidentifiedEventsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		l := New(Config{To: &b, Queue: 10000, UnidentifiedRate: 2, Log: quiet})
		for range 1000 {
			l.Begin(request("/")).Completed(401, noCredential)
		}
		time.Sleep(limits.CombineEvery)
		synctest.Wait()
		got := events(t, b.Bytes())
		if written, stand := sum(t, b.Bytes()); written != 121 || stand != 1000 {
			t.Fatalf("%d events stand for %d", written, stand)
		}
		last := got[120]
		if last["sourceIPs"].([]any)[0] != "192.0.2.7" || last["auditID"] == got[0]["auditID"] ||
			last["responseStatus"].(map[string]any)["code"] != 401.0 || last["stage"] != "ResponseComplete" {
			t.Errorf("%v", last)
		}
		// The rate of the time since then is there again.
		for range 100 {
			l.Begin(request("/")).Completed(401, noCredential)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if written, stand := sum(t, b.Bytes()); written != 121+20+1 || stand != 1100 {
			t.Errorf("%d events stand for %d", written, stand)
		}
	})
}

// An attacker must not hide by summaries how many events were lost.
func TestLostSummaryCountsAllItsEvents(t *testing.T) {
	for name, queue := range map[string]int{"queue": 10000, "no queue": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(Config{To: failingWriter{}, Queue: queue, UnidentifiedRate: 1, Log: quiet})
				for range 1000 {
					l.Begin(request("/")).Completed(401, noCredential)
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_ = l.Close(ctx)
				synctest.Wait()
				if lost := l.Stats().Lost; lost != 1000 {
					t.Errorf("%d events are lost, want 1000", lost)
				}
			})
		})
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// A function has no time of its own, so a later request must write the summary.
func TestUnidentifiedEventsAreCountedWithoutQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		l := New(Config{To: &b, Log: quiet})
		for range 1000 {
			l.Begin(request("/")).Completed(401, noCredential)
		}
		time.Sleep(limits.CombineEvery)
		if written, stand := sum(t, b.Bytes()); written != 60 || stand != 60 {
			t.Fatalf("%d events stand for %d", written, stand)
		}
		record(l, "/")
		if written, stand := sum(t, b.Bytes()); written != 62 || stand != 1001 {
			t.Fatalf("%d events stand for %d", written, stand)
		}
	})
}

// Every event of an identified caller must be on record by itself, also during an attack.
func TestIdentifiedEventsAreNeverCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		l := New(Config{To: &b, Queue: 10000, Log: quiet})
		for range 1000 {
			record(l, "/ours")
			q := l.Begin(request("/accepted"))
			q.Unverified(Token{Hash: "h"})
			q.Completed(403, nil)
			l.Begin(request("/theirs")).Completed(401, noCredential)
			q = l.Begin(request("/theirs"))
			q.Unverified(Token{Hash: "h"})
			q.Started(401)
			q.Completed(401, nil)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if written, stand := sum(t, b.Bytes()); written != 2000+60+1 || stand != 4000 {
			t.Errorf("%d events stand for %d", written, stand)
		}
	})
}

// TestUnidentifiedTextsAreShort: what a client without a credential writes into the log is bounded, in every field.
func TestUnidentifiedTextsAreShort(t *testing.T) {
	for name, char := range map[string]string{
		"escaped by HTML": "&", "escaped by JSON": "\"", "no UTF-8": "a\xff", "long": "ü",
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			long := strings.Repeat(char, 16<<10)
			r := request("/")
			r.RequestURI = "/clusters/" + long
			r.Header.Set("User-Agent", long)
			q := New(Config{To: &b, Log: quiet}).Begin(r)
			q.Target(long, route.Resource{
				IsResource: true, Verb: long, Resource: long, Namespace: long, Name: long, APIGroup: long, APIVersion: long,
				Subresource: long,
			})
			q.Unverified(Token{Hash: "h", Issuer: long, Subject: long, ID: long})
			q.Completed(401, status.New(status.Unauthenticated, "", "no %s", long))
			if len(events(t, b.Bytes())) != 1 || b.Len() > 10<<10 {
				t.Errorf("%d bytes: %.300s", b.Len(), &b)
			}
			if uri := events(t, b.Bytes())[0]["requestURI"].(string); len(uri) > 2*maxUnidentified+len("…") {
				t.Errorf("the URI has %d bytes", len(uri))
			}
		})
	}
}

// TestURLsAreNotMultiplied: an event of an identified caller has the whole URL, in about as many bytes.
func TestURLsAreNotMultiplied(t *testing.T) {
	var b bytes.Buffer
	uri := "/?" + strings.Repeat("&<>", 5000)
	record(New(Config{To: &b, Log: quiet}), uri)
	if got := events(t, b.Bytes())[0]["requestURI"]; got != uri || b.Len() > len(uri)+2000 {
		t.Errorf("%d bytes for a URL of %d", b.Len(), len(uri))
	}
}

// An operator must find the callers of a passthrough cluster by their tokens. An unverified claim is no user.
func TestUnverifiedTokenIsOnRecord(t *testing.T) {
	var b bytes.Buffer
	q := New(Config{To: &b, Log: quiet}).Begin(request("/"))
	q.Unverified(Token{Hash: "abc", Issuer: "https://issuer", Subject: "system:admin", ID: "7"})
	q.Completed(http.StatusOK, nil)
	e := events(t, b.Bytes())[0]
	annotations := e["annotations"].(map[string]any)
	for key, want := range map[string]string{
		TokenHashAnnotation: "abc", TokenIssuerAnnotation: "https://issuer", TokenSubjectAnnotation: "system:admin",
		TokenIDAnnotation: "7", MethodAnnotation: "passthrough",
	} {
		if annotations[key] != want {
			t.Errorf("%s is %v, want %s", key, annotations[key], want)
		}
	}
	if user := e["user"].(map[string]any); len(user) != 0 {
		t.Errorf("the event has a user: %v", user)
	}
}
