package bridge

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/storetest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// TestRefusedSessionsAreRecorded: attempts are evidence, too.
func TestRefusedSessionsAreRecorded(t *testing.T) {
	rb := serveRecorded(t, required, Limits{}, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no such pod", http.StatusNotFound)
	})
	_, resp, err := rb.dial("alice", recordedPath, nil, "v5.channel.k8s.io")
	if err == nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("%v, %v", resp, err)
	}
	if r := rb.onlyRecording(); r.isCut || !strings.Contains(r.events[recording.Exit], "HTTP 404") {
		t.Errorf("recorded %s", r)
	}
}

// TestPassthroughCallerIsRecorded: only the token identifies who opened a session that only the member authorizes. A
// list must not show the claims of a token as a user.
func TestPassthroughCallerIsRecorded(t *testing.T) {
	rb := serveRecorded(t, required, Limits{}, nil)
	rb.addMember("open", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
	claims := fmt.Sprintf(`{"iss":"https://issuer.example","sub":"system:serviceaccount:ci:deploy","jti":"%s"}`,
		strings.Repeat("j", 1000))
	token := "x." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".y"
	path := strings.Replace(recordedPath, "/m/", "/open/", 1)
	resp, _ := rb.get("", path, "Authorization: Bearer "+token)
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("%s", resp.Status)
	}
	r := rb.onlyRecording()
	want := recording.Unverified{
		TokenSHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(token))), Issuer: "https://issuer.example",
		Subject: "system:serviceaccount:ci:deploy", TokenID: strings.Repeat("j", 256) + "…",
	}
	if r.Unverified != want || r.User != "" || r.Caller() != "unverified system:serviceaccount:ci:deploy" {
		t.Errorf("header %+v, want %+v", r.Info, want)
	}
	// A token without claims has only its digest.
	_, _ = rb.get("", path, "Authorization: Bearer opaque")
	waittest.Until(t, "the second session is recorded", func() bool { return len(rb.recordings()) == 2 })
	for _, r := range rb.recordings() {
		if r.Subject == "" && r.Caller() != fmt.Sprintf("unverified token %x", sha256.Sum256([]byte("opaque")))[:33] {
			t.Errorf("caller %q of %+v", r.Caller(), r.Info)
		}
	}
}

// TestRequestIDWithoutAuditLog: without an audit log of the gateway, the audit log of the member must still be able to
// name the request of a recording.
func TestRequestIDWithoutAuditLog(t *testing.T) {
	signer, _ := storetest.NewSigner(t)
	store, arrived := &storetest.Memory{}, make(chan string, 1)
	hs := serveFresh(t, Limits{}, Drain{}, cluster.Freshness{}, func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.Header.Get(audit.IDHeader)
		w.WriteHeader(http.StatusNotFound)
	}, func(b *Bridge, c *gateway.Config) {
		c.Recordings = required
		b.RecordTo(recording.New(recording.Config{Store: store, Signer: signer}), slog.New(slog.DiscardHandler))
	})
	resp, _ := hs.get("alice", recordedPath, audit.IDHeader+": chosen")
	ids, err := store.List(t.Context(), "")
	if err != nil || len(ids) != 1 {
		t.Fatalf("recordings %v, %v", ids, err)
	}
	r, err := recording.OpenUnverified(t.Context(), store, ids[0])
	if err != nil {
		t.Fatal(err)
	}
	id, member := r.Info().RequestID, <-arrived
	if len(id) != 36 || member != id || resp.Header.Get(audit.IDHeader) != id {
		t.Errorf("the recording has the id %q, the member %q, the response %q", id, member, resp.Header.Get(audit.IDHeader))
	}
}

// TestImpossibleNamesStoreNothing: a client needs no credential for a session of a passthrough cluster. It must not
// fill a directory of recordings with names that no API server accepts.
func TestImpossibleNamesStoreNothing(t *testing.T) {
	member := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	for name, tt := range map[string]struct{ namespace, pod, container, want string }{
		"namespace": {strings.Repeat("n", 64), "p", "c", "the name of the namespace has 64 bytes; want at most 63"},
		"pod":       {"n", strings.Repeat("p", 254), "c", "the name of the pod has 254 bytes; want at most 253"},
		"container": {"n", "p", strings.Repeat("c", 64), "the name of the container has 64 bytes; want at most 63"},
		"none":      {strings.Repeat("n", 63), strings.Repeat("p", 253), strings.Repeat("c", 63), ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, rule := range []rules{required, bestEffort} {
				rb := serveRecorded(t, rule, Limits{}, nil)
				rb.addMember("open", member, func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
				resp, _ := rb.get("", "/clusters/open/api/v1/namespaces/"+tt.namespace+"/pods/"+tt.pod+"/exec?container="+
					tt.container, "Authorization: Bearer made-up")
				if tt.want != "" {
					gatewaytest.WantStatus(t, resp, http.StatusBadRequest, "bad_request", tt.want)
				} else if resp.StatusCode != http.StatusUnauthorized {
					t.Errorf("%s", resp.Status)
				}
				if n := len(rb.recordings()); n > 0 != (tt.want == "") {
					t.Errorf("%d recordings are stored", n)
				}
			}
		})
	}
}
