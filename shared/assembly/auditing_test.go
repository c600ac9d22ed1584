package assembly

import (
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
)

// A program without files reads the kubeconfig from a secret. A program whose webhook cannot be used must not start: it
// would record nothing.
func TestAuditWebhookIsConfigured(t *testing.T) {
	var received atomic.Int64
	hook := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer sesame" && r.URL.Path == "/events" {
			received.Add(1)
		}
	}))
	t.Cleanup(hook.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	kubeconfig := clustertest.Kubeconfig(hook.URL+"/events", ca, "{token: sesame}")
	st, err := stores.Open(t.Context(), stores.Address{Kind: "dir", Where: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Secrets.Create(t.Context(), "audit/webhook", secrets.NewValue(kubeconfig), nil); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	for i, where := range []string{file, "secret:audit/webhook"} {
		var a Auditing
		if err := a.AuditWebhook.Decode(where); err != nil {
			t.Fatal(err)
		}
		log, err := a.open(t.Context(), st, quiet, 0)
		if err != nil {
			t.Fatal(err)
		}
		q := log.Begin(httptest.NewRequest(http.MethodGet, "/", nil))
		q.User(audit.User{Username: "ann"}, "x509")
		q.Completed(http.StatusOK, nil)
		if n := received.Load(); n != int64(i)+1 || log.Stats().Lost != 0 {
			t.Errorf("%s: %d events are received, %+v", where, n, log.Stats())
		}
		if err := log.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, where := range []string{file + "x", "secret:none"} {
		_, err := (&Auditing{AuditWebhook: AuditWebhook(where)}).open(t.Context(), st, quiet, 0)
		var bad *config.Error
		if !errors.As(err, &bad) || bad.Variable != "CLUSTERPASS_AUDIT_WEBHOOK" {
			t.Errorf("%s: %v", where, err)
		}
	}
	for _, where := range []string{"relative", "secret:", "secret:A", "https://webhook"} {
		if err := new(AuditWebhook).Decode(where); err == nil {
			t.Errorf("%q is accepted", where)
		}
	}
}
