package private_test

import (
	"encoding/pem"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/functions/rotate"
	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/test/e2e"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
)

// TestRotationByTunnel: the credentials of private clusters must be rotated, through the tunnel, on AWS.
func TestRotationByTunnel(t *testing.T) {
	ctx := t.Context()
	moto, front, _ := e2e.StartAWS(t)
	if out, err := e2e.CLI(t, "", "init", "--store", "aws:e2e"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	store := stores.Address{Kind: "aws", Where: "e2e"}
	st, err := stores.Open(ctx, store)
	if err != nil {
		t.Fatal(err)
	}

	log := slog.New(slog.NewJSONHandler(e2e.Printed, nil))
	url, tunnelAddr, file := startAgentBridge(t, st, log)
	p := &privateCluster{t: t, PrivateCluster: e2e.PrivateCluster{
		Name: "rotated", Member: e2e.Clusters.Cluster("member2"), Gateway: file, Store: []string{"--store", "aws:e2e"},
	}}
	p.Join(t, "--tunnel", "https://"+tunnelAddr, "--token-lifetime", "1h")
	all, err := (&registration.Registrar{Objects: st.Objects, Secrets: st.Secrets}).Clusters(ctx)
	if err != nil || len(all) != 1 {
		t.Fatalf("clusters %v, %v", all, err)
	}
	secret := "e2e/" + all[0].SecretName()
	manager := secretsmanager.NewFromConfig(mototest.Config(front.URL))
	token := func() string {
		t.Helper()
		out, err := manager.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &secret,
			VersionStage: aws.String("AWSCURRENT")})
		if err != nil {
			t.Fatal(err)
		}
		e2e.NoteSecretsManager(t, moto.URL)
		kc, err := clientcmd.Load([]byte(*out.SecretString))
		if err != nil {
			t.Fatal(err)
		}
		return kc.AuthInfos[kc.Contexts[kc.CurrentContext].AuthInfo].Token
	}
	first := token()

	rotator := func(url string) *rotate.Rotator {
		t.Helper()
		r, err := (&rotate.Config{Store: store, TokenLifetime: time.Hour, URL: config.URL(url)}).Open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		r.Log = log
		return r
	}
	id := e2e.BeginRotation(t, manager, secret, 1)
	expectError := func(r *rotate.Rotator, why string) {
		t.Helper()
		err := r.Handle(ctx, rotate.Event{Step: "createSecret", SecretID: secret, ClientRequestToken: id})
		if err == nil || !strings.Contains(err.Error(), why) || token() != first {
			t.Errorf("error %v, want one with %q", err, why)
		}
	}
	expectError(rotator(url), "none of its agents is connected")
	p.startReadyAgent()
	expectError(rotator(""), "CLUSTERPASS_URL")
	expectError(rotator("https://another.example.com"), "is invalid")
	e2e.EndRotation(t, manager, rotator(url), secret, id)
	second := token()
	e2e.RotateOnce(t, manager, rotator(url), secret, 2)
	if third := token(); second == first || third == second {
		t.Error("the credential stays as it is")
	}
	// The member accepts the newest credential as the service account that join created.
	kc := filepath.Join(t.TempDir(), "rotated")
	out, err := manager.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &secret,
		VersionStage: aws.String("AWSCURRENT")})
	if err == nil {
		err = os.WriteFile(kc, []byte(*out.SecretString), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	who := e2e.Kubectl{Kubeconfig: kc, Context: "member2"}.Must(t, "auth", "whoami", "-o",
		"jsonpath={.status.userInfo.username}")
	if !strings.HasPrefix(who, "system:serviceaccount:clusterpass-system:clusterpass-rotated-") {
		t.Errorf("it is %s", who)
	}
}

// startAgentBridge starts the part of a bridge that serves agents. file is the path of a kubeconfig for it.
func startAgentBridge(t *testing.T, st *stores.Stores, log *slog.Logger) (url, tunnelAddr, file string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	url = "https://" + srv.Listener.Addr().String()
	bridge := agentserver.New(agentserver.Config{
		Issuer:   &passes.Issuer{Objects: st.Objects, Secrets: st.Secrets, URL: url},
		Verifier: passes.NewVerifier(passes.Config{Objects: st.Objects, Secrets: st.Secrets, URL: url, Log: log}),
		Log:      log, Metrics: prometheus.NewRegistry(),
	})
	srv.Config.Handler = bridge.Handler(http.NotFoundHandler())
	srv.StartTLS()
	t.Cleanup(srv.Close)
	t.Cleanup(bridge.Close) // before srv.Close, which waits for agents
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := bridge.Listen(ln)
	t.Cleanup(func() { _ = port.Close() })
	gatewayConfig := clientcmdapi.NewConfig()
	gatewayConfig.Clusters[kubeconfig.Own] = &clientcmdapi.Cluster{
		Server: url, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: srv.Certificate().Raw}),
	}
	file = filepath.Join(t.TempDir(), "gateway")
	if err := clientcmd.WriteToFile(*gatewayConfig, file); err != nil {
		t.Fatal(err)
	}

	return url, ln.Addr().String(), file
}
