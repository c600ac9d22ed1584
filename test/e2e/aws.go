package e2e

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/clusterpass/clusterpass/functions/rotate"
	"github.com/clusterpass/clusterpass/infra/local/frontdoor"
	"github.com/clusterpass/clusterpass/infra/local/lambda"
	"github.com/clusterpass/clusterpass/infra/local/lambda/event"
	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/route"
)

// ProxyFunction runs the proxy function as Lambda does, with a number of processes. Clients use TLS with a client
// certificate.
func ProxyFunction(t *testing.T, processes int, region string, env map[string]string) *httptest.Server {
	t.Helper()
	const group = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/proxy/1"
	all := map[string]string{"CLUSTERPASS_MTLS_TARGET_GROUP": group, "CLUSTERPASS_ALLOW_LOOPBACK": "true"}
	maps.Copy(all, lambda.RuntimeVariables("proxy"))
	maps.Copy(all, env)
	fn, err := lambda.NewFunction(lambda.Config{
		Name: "proxy", Bootstrap: filepath.Join(functionsDir(t), "proxy", "bootstrap"), Region: region, Env: all,
		Output: Printed, MaxConcurrency: processes, InitTimeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fn.Close(context.Background()) })
	srv := httptest.NewUnstartedServer(&frontdoor.Server{
		Functions: map[route.Backend]http.Handler{route.ToProxy: lambda.Target{Invoker: fn,
			Front: event.ALB{TargetGroupARN: group}}},
	})
	srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

// StartAWS starts an emulator of AWS and sets the environment of this process to use it.
func StartAWS(t *testing.T) (moto *mototest.Server, front *mototest.Front, credentials map[string]string) {
	t.Helper()
	moto, err := mototest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(moto.Close)
	front = mototest.NewFront(t, moto.URL)
	credentials = map[string]string{"AWS_ENDPOINT_URL": front.URL, "AWS_ACCESS_KEY_ID": "test",
		"AWS_SECRET_ACCESS_KEY": rand.Text()}
	Secrets.Secret("the environment", credentials["AWS_SECRET_ACCESS_KEY"])
	t.Setenv("AWS_REGION", mototest.Config(front.URL).Region)
	for k, v := range credentials {
		t.Setenv(k, v)
	}
	return moto, front, credentials
}

// RotateOnce rotates a secret as Secrets Manager does.
func RotateOnce(t *testing.T, manager *secretsmanager.Client, rotator *rotate.Rotator, secret string, n int) {
	t.Helper()
	EndRotation(t, manager, rotator, secret, BeginRotation(t, manager, secret, n))
}

// EndRotation calls the function for each step of a pending version, and checks that the version is current then.
func EndRotation(t *testing.T, manager *secretsmanager.Client, rotator *rotate.Rotator, secret, id string) {
	t.Helper()
	for _, step := range []string{"createSecret", "setSecret", "testSecret", "finishSecret"} {
		event := rotate.Event{Step: step, SecretID: secret, ClientRequestToken: id}
		if err := rotator.Handle(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	now, err := manager.GetSecretValue(t.Context(), &secretsmanager.GetSecretValueInput{SecretId: &secret,
		VersionStage: aws.String("AWSCURRENT")})
	if err != nil || *now.VersionId != id {
		t.Fatalf("current version %v, %v; want %s", now, err, id)
	}
}

// BeginRotation makes a pending version and returns its id.
func BeginRotation(t *testing.T, manager *secretsmanager.Client, secret string, n int) string {
	id := fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	// The function does not exist. moto returns that error after it has made the pending version.
	_, _ = manager.RotateSecret(t.Context(), &secretsmanager.RotateSecretInput{
		SecretId: &secret, ClientRequestToken: &id,
		RotationLambdaARN: aws.String("arn:aws:lambda:eu-west-1:123456789012:function:none"),
	})
	return id
}
