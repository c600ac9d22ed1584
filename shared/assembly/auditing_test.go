package assembly

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
)

// recordCall records the event of a successful request by ann.
func recordCall(log *audit.Log) {
	q := log.Begin(httptest.NewRequest(http.MethodGet, "/", nil))
	q.User(audit.User{Username: "ann"}, "x509")
	q.Completed(http.StatusOK, nil)
}

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
		recordCall(log)
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

// A program in a stack reads region, endpoint and credentials from its environment. A program whose log group cannot be
// used must not start.
func TestAuditLogGroupIsConfigured(t *testing.T) {
	var streams atomic.Value
	logs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ LogGroupName, LogStreamName string }
		if json.NewDecoder(r.Body).Decode(&in) == nil && in.LogGroupName == "/clusterpass/prod/audit" &&
			r.Header.Get("X-Amz-Target") == "Logs_20140328.PutLogEvents" {
			streams.Store(in.LogStreamName)
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(logs.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": logs.URL, "AWS_REGION": "eu-central-1", "AWS_DEFAULT_REGION": "", "AWS_ACCESS_KEY_ID": "test",
		"AWS_SECRET_ACCESS_KEY": "test", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	st, err := stores.Open(t.Context(), stores.Address{Kind: "dir", Where: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	for prefix, want := range map[StreamPrefix]string{"proxy": "proxy/2", "": "gateway/2"} {
		a := Auditing{AuditLogGroup: "/clusterpass/prod/audit", AuditLogStream: prefix, AuditFailClosed: true}
		log, err := a.open(t.Context(), st, quiet, 0)
		if err != nil {
			t.Fatal(err)
		}
		recordCall(log)
		if got, _ := streams.Load().(string); !strings.HasPrefix(got, want) || log.Stats().Lost != 0 {
			t.Errorf("the event is in the stream %q, want %s; %+v", got, want, log.Stats())
		}
		if err := log.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	t.Setenv("AWS_REGION", "")
	_, err = (&Auditing{AuditLogGroup: "g"}).open(t.Context(), st, quiet, 0)
	var bad *config.Error
	if !errors.As(err, &bad) || bad.Variable != "CLUSTERPASS_AUDIT_LOG_GROUP" {
		t.Errorf("without a region: %v", err)
	}
	for _, name := range []string{"a b", "a:b", "a*"} {
		if new(LogGroup).Decode(name) == nil || new(StreamPrefix).Decode(name) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
	if new(LogGroup).Decode("") != nil || new(StreamPrefix).Decode("") == nil {
		t.Error("an empty group must mean none, and an empty prefix is no name")
	}
}
