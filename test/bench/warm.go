package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/clusterpass/clusterpass/infra/local/lambda"
	"github.com/clusterpass/clusterpass/infra/local/lambda/event"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/test/bench/coldstart"
	"github.com/clusterpass/clusterpass/test/cluster"
)

const (
	warmInvocations = 300 // in each of callRounds rounds
	warmGroup       = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/proxy/1"
)

// warm measures a call through a running function behind the local Runtime API, beside a direct call and a function
// that returns a constant. The server of the local program is not measured.
func warm(ctx context.Context, out *report, set *cluster.Set, dir string) (err error) {
	direct, err := newEndpoint("direct", set.Cluster("member1").RESTConfig())
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, "warm")
	hello, proxy, payload, err := warmFunctions(ctx, set.Cluster("member1"), dir)
	if err != nil {
		return err
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, hello.Close(ctx), proxy.Close(ctx))
	}()
	kinds := []struct {
		name string
		call func() error
	}{
		{"direct", func() error { return get(ctx, direct, smallPath) }},
		{"a function that returns a constant", func() error { _, err := hello.Invoke(ctx, payload); return err }},
		{"functions/proxy", func() error {
			answer, err := proxy.Invoke(ctx, payload)
			if err == nil && !bytes.Contains(answer, []byte(`"statusCode":200`)) {
				err = fmt.Errorf("the function answered %.300s", answer)
			}
			return err
		}},
	}
	elapsed := make([][]time.Duration, len(kinds))
	for round := range callRounds + 1 {
		for i, kind := range kinds {
			for range warmInvocations {
				start := time.Now()
				if err := kind.call(); err != nil {
					return fmt.Errorf("%s: %w", kind.name, err)
				}
				if round > 0 { // the first one starts the processes
					elapsed[i] = append(elapsed[i], time.Since(start))
				}
			}
		}
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\nwarm GET by the Runtime API\tp50 ms\tp95 ms\t- direct\t")
	for i, kind := range kinds {
		slices.Sort(elapsed[i])
		_, _ = fmt.Fprintf(tw, "%s\t%.2f\t%.2f\t%.2f\t\n", kind.name, ms(at(elapsed[i], 0.5)), ms(at(elapsed[i], 0.95)),
			ms(at(elapsed[i], 0.5)-at(elapsed[0], 0.5)))
	}
	out.atMost("warm call under the Runtime API, beyond direct", ms(at(elapsed[2], 0.5)-at(elapsed[0], 0.5)), 1.2, " ms")
	return tw.Flush()
}

// warmFunctions starts no process yet. payload is the event of a GET by a caller with a client certificate.
func warmFunctions(ctx context.Context, member *cluster.Cluster, dir string) (
	hello, proxy *lambda.Function, payload []byte, err error,
) {
	store := stores.Address{Kind: "dir", Where: filepath.Join(dir, "data")}
	st, err := stores.Open(ctx, store)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := grantToAll(ctx, st, member); err != nil {
		return nil, nil, nil, err
	}
	ca, err := pki.LoadCA(dir, "client-ca")
	if err != nil {
		return nil, nil, nil, err
	}
	if payload, err = albEvent(ca, "/clusters/"+member.Name()+smallPath); err != nil {
		return nil, nil, nil, err
	}
	program := filepath.Join(dir, "hello")
	if err := coldstart.BuildHello(ctx, program); err != nil {
		return nil, nil, nil, err
	}
	if hello, err = lambda.NewFunction(lambda.Config{Name: "hello", Bootstrap: program, MaxConcurrency: 1}); err != nil {
		return nil, nil, nil, err
	}
	env := map[string]string{
		"CLUSTERPASS_STORE": "dir:" + store.Where, "CLUSTERPASS_CLIENT_CA": string(ca.PEM()),
		"CLUSTERPASS_ALLOW_LOOPBACK": "true", "CLUSTERPASS_MTLS_TARGET_GROUP": warmGroup,
	}
	maps.Copy(env, lambda.RuntimeVariables("proxy"))
	proxy, err = lambda.NewFunction(lambda.Config{
		Name: "proxy", Bootstrap: "dist/local/functions/proxy/bootstrap", MaxConcurrency: 1, Env: env,
	})
	return hello, proxy, payload, err
}

// albEvent returns the event of a GET by the user bench, as a load balancer with mutual TLS sends it.
func albEvent(ca *pki.CA, path string) ([]byte, error) {
	certificate, key, err := ca.Client("bench", nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, err
	}
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set(string(identity.ALBHeader), identity.FormatALBHeader([]*x509.Certificate{leaf}))
	return event.ALB{TargetGroupARN: warmGroup}.Event(r)
}
