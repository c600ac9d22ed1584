package recorder

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/storetest"
)

// TestPortForwardOfAKilledBridge fails if the numbers of bytes are stored only at the end of a port-forward, which a
// bridge that is killed does not reach.
func TestPortForwardOfAKilledBridge(t *testing.T) { synctest.Test(t, testPortForwardOfAKilledBridge) }

func testPortForwardOfAKilledBridge(t *testing.T) {
	signer, _ := storetest.NewSigner(t)
	store := &storetest.Memory{}
	info := recording.Info{Kind: recording.PortForward}
	rec, err := recording.New(recording.Config{Store: store, Signer: signer}).Begin(t.Context(), info)
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(New(prometheus.NewRegistry()), rec, info, &gateway.StreamCall{Call: &forward.Call{}}, nil)
	for n := range int64(3) {
		s.in.Add(7)
		s.out.Add(n)
		<-time.After(countInterval + 2*time.Second)
	}
	<-time.After(time.Hour) // nothing is transferred, so nothing is recorded
	r, err := recording.OpenUnverified(t.Context(), store, rec.ID())
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for e, err := r.Next(t.Context()); err == nil; e, err = r.Next(t.Context()) {
		got += fmt.Sprintf("%s in=%d out=%d; ", e.Time, e.In, e.Out)
	}
	if want := "10s in=7 out=0; 20s in=14 out=1; 30s in=21 out=3; "; got != want {
		t.Errorf("stored %q, want %q", got, want)
	}
	if err := s.Close(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestImpersonatorIsRecorded fails if the header of a recording does not name the person behind --as.
func TestImpersonatorIsRecorded(t *testing.T) {
	c := &gateway.StreamCall{Call: &forward.Call{User: &identity.User{Name: "ann", Impersonator: "bob"}}}
	if i := infoOf(httptest.NewRequest("GET", "/", nil), c); i.User != "ann" || i.Caller() != "ann, impersonated by bob" {
		t.Errorf("header %+v", i)
	}
	c.User = &identity.User{Name: "ann"}
	if i := infoOf(httptest.NewRequest("GET", "/", nil), c); i.Caller() != "ann" {
		t.Errorf("header %+v", i)
	}
}

// TestPassIsRecorded fails if the header of a recording does not name the pass with which a caller came.
func TestPassIsRecorded(t *testing.T) {
	caller := &identity.User{Name: "ann", Extra: map[string][]string{identity.ExtraPass: {"pass-1"}}}
	c := &gateway.StreamCall{Call: &forward.Call{User: caller}, Caller: caller}
	if i := infoOf(httptest.NewRequest("GET", "/", nil), c); i.User != "ann" || i.Pass != "pass-1" {
		t.Errorf("header %+v", i)
	}
	c.User = &identity.User{Name: "eve", Impersonator: "ann"} // has no pass
	if i := infoOf(httptest.NewRequest("GET", "/", nil), c); i.User != "eve" || i.Pass != "pass-1" {
		t.Errorf("with --as: header %+v", i)
	}
}
