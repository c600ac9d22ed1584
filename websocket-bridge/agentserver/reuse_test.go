package agentserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/metrictest"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/credential"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/links"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
)

const reuses = "clusterpass_agent_credential_reuses_total"

func (w *world) store(file credential.File, bootstrap secrets.Value) {
	w.t.Helper()
	if err := os.WriteFile(string(file), bootstrap.Reveal(), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) credential(cluster string, store credential.Store, r *replica) *credential.Credential {
	return &credential.Credential{
		Store: store, Cluster: cluster, URL: r.front.URL + route.AgentPath(cluster) + route.AgentCredential,
		Client: r.front.Client(), Log: w.log, Now: w.Clock.Now,
	}
}

func (w *world) current(c *credential.Credential) possession.Credential {
	w.t.Helper()
	got, err := c.Current(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// renew returns a response and a credential whose token is the body, also after an error.
func (w *world) renew(
	front *httptest.Server, cluster string, c possession.Credential,
) (*http.Response, possession.Credential) {
	w.t.Helper()
	key, request := w.request(cluster)
	url := front.URL + route.AgentPath(cluster) + route.AgentCredential
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header = w.header(c, possession.Renew, request)
	resp, err := front.Client().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, possession.Credential{Token: secrets.NewValue(body), Key: key}
}

func (w *world) reused(cluster string) *metav1.Condition {
	w.t.Helper()
	o, err := w.Objects.Get(w.t.Context(), clusterv1alpha1.Prefix+cluster)
	if err != nil {
		w.t.Fatal(err)
	}
	var c clusterv1alpha1.Cluster
	if err := json.Unmarshal(o.Value, &c); err != nil {
		w.t.Fatal(err)
	}
	return apimeta.FindStatusCondition(c.Status.Conditions, clusterv1alpha1.AgentCredentialReused)
}

func (w *world) refusedDial(cluster string, c possession.Credential, r *replica) {
	w.t.Helper()
	ws, resp, err := w.dial(cluster, c, r)
	if err == nil {
		_ = ws.Close()
	}
	if err == nil || resp == nil || resp.StatusCode != http.StatusUnauthorized {
		w.t.Errorf("dial: %+v, %v", resp, err)
	}
}

// TestCopiedCredentialWithoutKeyIsWorthless: anyone with a copy, as from the log of a proxy, could act as the agent
// forever.
func TestCopiedCredentialWithoutKeyIsWorthless(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	honest := w.enrol("prod", time.Hour)
	w.Clock.Advance(time.Minute)
	thief, _ := w.request("prod")
	for name, key := range map[string]*possession.Key{"no key": nil, "a key of the thief": thief} {
		copied := possession.Credential{Token: honest.Token, Key: key}
		w.refusedDial("prod", copied, r)
		if resp, _ := w.renew(r.front, "prod", copied); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("with %s it is renewed: %s", name, resp.Status)
		}
	}
	if w.reused("prod") != nil || metrictest.Value(t, r.metrics, reuses) != 0 {
		t.Error("a copy without the key cuts the agents off")
	}
	w.agent("prod", honest, w.front.address())
	r.connects(t, 1)
}

// TestProofIsForOneRequest: a captured proof must not replace the key.
func TestProofIsForOneRequest(t *testing.T) {
	w := newWorld(t)
	honest := w.enrol("prod", time.Hour)
	_, request := w.request("prod")
	_, other := w.request("prod")
	for name, tt := range map[string]struct {
		change func(*passes.AgentAuth)
		isGood bool
	}{
		"unchanged":           {func(*passes.AgentAuth) {}, true},
		"for another request": {func(p *passes.AgentAuth) { p.CertificateRequest = other }, false},
		"for another use":     {func(p *passes.AgentAuth) { p.Use = possession.Connect }, false},
		"later":               {func(*passes.AgentAuth) { w.Clock.Advance(2 * possession.ProofAge) }, false},
		"as the token":        {func(p *passes.AgentAuth) { p.Token = p.Proof }, false},
		"the token as proof":  {func(p *passes.AgentAuth) { p.Proof = p.Token }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := w.present(honest, possession.Renew, request)
			tt.change(&p)
			if _, err := w.keys.AuthenticateAgent(t.Context(), "prod", p); (err == nil) != tt.isGood {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestBootstrapIsGoodForOneExchange: anyone with an old manifest could be an agent of the cluster.
func TestBootstrapIsGoodForOneExchange(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	bootstrap := possession.Credential{Token: w.bootstrap("prod", time.Hour)}
	w.refusedDial("prod", bootstrap, r)
	resp, honest := w.renew(r.front, "prod", bootstrap)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", resp.Status, honest.Token.Reveal())
	}
	w.agent("prod", honest, w.front.address())
	r.connects(t, 1)
	if resp, _ := w.renew(r.front, "prod", bootstrap); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the second exchange: %s", resp.Status)
	}
	if w.reused("prod") == nil {
		t.Error("the Cluster has no condition")
	}
	r.connects(t, 0)
}

// TestCopiedKeyIsDetected: with a backup of the member's Secrets, a thief could stay an agent of the cluster unnoticed.
func TestCopiedKeyIsDetected(t *testing.T) {
	for name, thiefFirst := range map[string]bool{"the thief renews first": true, "the agent renews first": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			logged := &waittest.Buffer{}
			r := w.replica(func(c *agentserver.Config) { c.Log = slog.New(slog.NewJSONHandler(logged, nil)) })
			events := &waittest.Buffer{}
			r.RecordTo(audit.New(audit.Config{To: events}))
			file := credential.File(filepath.Join(t.TempDir(), "credential"))
			w.store(file, w.bootstrap("prod", time.Hour))
			honest := w.credential("prod", file, r)
			copied := w.current(honest)
			w.agent("prod", possession.Credential{}, w.front.address(), func(c *links.Config) { c.Credential = honest.Current })
			r.connects(t, 1)
			w.Clock.Advance(31 * time.Minute)
			if thiefFirst {
				if resp, _ := w.renew(r.front, "prod", copied); resp.StatusCode != http.StatusOK {
					t.Fatalf("the thief: %s", resp.Status)
				}
				if _, err := honest.Current(t.Context()); err == nil {
					t.Error("the agent's credential is renewed after the thief's")
				}
			} else {
				w.current(honest)
				if resp, _ := w.renew(r.front, "prod", copied); resp.StatusCode != http.StatusUnauthorized {
					t.Errorf("the thief: %s", resp.Status)
				}
			}
			c := w.reused("prod")
			if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "127.0.0.1") ||
				!strings.Contains(c.Message, "join --pull --replace prod") {
				t.Errorf("the condition is %+v", c)
			}
			if n := metrictest.Value(t, r.metrics, reuses); n != 1 {
				t.Errorf("%v are counted", n)
			}
			hasEvent := strings.Contains(events.String(), `"clusterpass:agent:prod"`)
			if !strings.Contains(logged.String(), `"level":"ERROR"`) || !hasEvent {
				t.Errorf("log: %s\naudit: %s", logged.String(), events.String())
			}
			r.connects(t, 0)
			w.refusedDial("prod", copied, r)

			o, err := w.Objects.Get(t.Context(), clusterv1alpha1.Prefix+"prod")
			var cluster clusterv1alpha1.Cluster
			if err == nil {
				err = json.Unmarshal(o.Value, &cluster)
			}
			if err != nil {
				t.Fatal(err)
			}
			again, err := w.issuer.EnrolAgent(t.Context(), &cluster, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if w.reused("prod") != nil {
				t.Error("the condition stays")
			}
			w.store(file, again)
			r.connects(t, 1)
			w.refusedDial("prod", copied, r)
			if w.reused("prod") != nil {
				t.Error("a copy from before cuts the agents off again")
			}
		})
	}
}

// TestOldGenerationIsDetectedAtConnect: a thief may connect with a copy instead of renewing it. An agent that read the
// store just before another agent renewed must not count as a thief.
func TestOldGenerationIsDetectedAtConnect(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	first := w.enrol("prod", time.Hour)
	w.Clock.Advance(30 * time.Minute)
	second := w.exchange("prod", first)
	w.agent("prod", first, w.front.address()) // at the same moment
	r.connects(t, 1)
	if w.reused("prod") != nil {
		t.Fatal("an agent that is a moment late is mistaken for a thief")
	}
	w.Clock.Advance(10 * time.Minute)
	w.refusedDial("prod", first, r)
	if w.reused("prod") == nil {
		t.Error("the Cluster has no condition")
	}
	w.refusedDial("prod", second, r)
	r.connects(t, 0)
}

// TestReplacedCredentialIsDetectedInTunnel: a thief whose tunnel is open could go on unnoticed after the agents have
// renewed the credential.
func TestReplacedCredentialIsDetectedInTunnel(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	events := &waittest.Buffer{}
	r.RecordTo(audit.New(audit.Config{To: events}))
	first := w.enrol("prod", time.Hour)
	thief := w.agent("prod", first, w.front.address())
	r.connects(t, 1)
	w.front.remove(r.front.Listener.Addr().String()) // the thief cannot connect again
	w.Clock.Advance(30 * time.Minute)
	second := w.exchange("prod", first)
	w.Clock.Advance(16 * time.Minute) // the bridge asks for a newer credential in the last quarter
	waittest.Until(t, "the Cluster has the condition", func() bool { return w.reused("prod") != nil })
	waittest.Until(t, "the thief's tunnel is closed", func() bool { return thief.Links() == 0 })
	if c := w.reused("prod"); !strings.Contains(c.Message, "127.0.0.1") {
		t.Errorf("the condition is %+v", c)
	}
	if metrictest.Value(t, r.metrics, reuses) == 0 || !strings.Contains(events.String(), `"clusterpass:agent:prod"`) {
		t.Errorf("the alarm is incomplete; audit: %s", events.String())
	}
	w.refusedDial("prod", second, r)
}

// TestCrashWhileRenewingLosesNothing: an agent that restarts at the wrong moment must not be locked out or reported as
// a thief.
func TestCrashWhileRenewingLosesNothing(t *testing.T) {
	for name, generation := range map[string]int{"of the bootstrap credential": 0, "of a bound one": 1} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := w.replica()
			file := credential.File(filepath.Join(t.TempDir(), "credential"))
			w.store(file, w.bootstrap("prod", time.Hour))
			if generation > 0 {
				w.current(w.credential("prod", file, r))
				w.Clock.Advance(31 * time.Minute)
			}
			store := &forgetful{File: file, saves: 1} // the key of the exchange is stored, but not the result
			lost := w.current(w.credential("prod", store, r))
			w.Clock.Advance(10 * time.Minute) // well after the overlap
			restarted := w.credential("prod", file, r)
			got := w.current(restarted)
			if got.Token.Equal(lost.Token) {
				t.Error("the credential was stored, so that this tests nothing")
			}
			w.agent("prod", got, w.front.address())
			r.connects(t, 1)
			w.Clock.Advance(31 * time.Minute)
			if next := w.current(restarted); next.Token.Equal(got.Token) {
				t.Error("it is not renewed any more")
			}
			if w.reused("prod") != nil {
				t.Error("the crash is mistaken for a theft")
			}
		})
	}
}

// TestStoreFailsAfterRenewal: an agent that cannot store its renewed credential must not use the old one. The gateway
// would report a theft.
func TestStoreFailsAfterRenewal(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	file := credential.File(filepath.Join(t.TempDir(), "credential"))
	w.store(file, w.bootstrap("prod", time.Hour))
	c := w.credential("prod", file, r)
	w.current(c)
	w.Clock.Advance(31 * time.Minute)
	c.Store = &forgetful{File: file, saves: 1}
	w.current(c)
	url := c.URL
	c.URL = "https://127.0.0.1:1"
	if got, err := c.Current(t.Context()); err == nil {
		t.Errorf("it connects with a credential that the gateway has renewed: %v", got)
	}
	c.URL, c.Store = url, file
	w.agent("prod", w.current(c), w.front.address())
	r.connects(t, 1)
}

// TestAgentsShareOneExchange: two agents of a Deployment that start together must not be reported as a theft.
func TestAgentsShareOneExchange(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	file := credential.File(filepath.Join(t.TempDir(), "credential"))
	w.store(file, w.bootstrap("prod", time.Hour))
	for range 2 { // the exchange, and a renewal
		got := make(chan error, 4)
		for range cap(got) {
			c := w.credential("prod", file, r)
			go func() {
				_, err := c.Current(context.Background())
				got <- err
			}()
		}
		for range cap(got) {
			if err := <-got; err != nil {
				t.Error(err)
			}
		}
		w.Clock.Advance(31 * time.Minute)
	}
	if w.reused("prod") != nil {
		t.Error("agents that start together are mistaken for a thief")
	}
}

type forgetful struct {
	credential.File
	saves int
}

func (f *forgetful) Save(ctx context.Context, old credential.Stored, s credential.State) error {
	if f.saves--; f.saves < 0 {
		return errors.New("the disk is full")
	}
	return f.File.Save(ctx, old, s)
}
