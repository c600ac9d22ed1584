package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/test/fleetcheck/generate"
)

// A write through the fleet may last 75 s.
const callTimeout = 2 * time.Minute

const maxAnswer = 256 << 20

type endpoint struct {
	client *http.Client
	root   string
}

func newEndpoint(cfg *rest.Config, root string) (endpoint, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	client, err := rest.HTTPClientFor(cfg)
	return endpoint{client, root}, err
}

type request struct {
	method, path string
	contentType  string
	accept       string
	body         []byte
}

type answer struct {
	code   int
	header http.Header
	body   []byte
}

// do returns an error only if there is no whole response.
func (e endpoint) do(ctx context.Context, r request) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := e.open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%s %s: read the response: %w", r.method, r.path, err)
	}
	return &answer{resp.StatusCode, resp.Header, body}, nil
}

// open makes a call and returns the response, whose body the caller closes.
func (e endpoint) open(ctx context.Context, r request) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, e.root+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "fleetcheck")
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if len(r.body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	return e.client.Do(req)
}

func (a *answer) isSuccess() bool { return a.code < http.StatusMultipleChoices }

func (a *answer) object() (map[string]any, error) {
	o := map[string]any{}
	if err := generate.Decode(a.body, &o); err != nil {
		return nil, fmt.Errorf("read the response %d: %w: %s", a.code, err, head(a.body))
	}
	return o, nil
}

// status returns an error if the response is no metav1.Status with the code of the response.
func (a *answer) status() (*metav1.Status, error) {
	var s metav1.Status
	if err := generate.Decode(a.body, &s); err != nil {
		return nil, fmt.Errorf("read the error %d: %w: %s", a.code, err, head(a.body))
	}
	if s.Kind != "Status" || int(s.Code) != a.code || s.Status != metav1.StatusFailure {
		return nil, fmt.Errorf("the error %d is no Status of that code: %s", a.code, head(a.body))
	}
	return &s, nil
}

func head(text []byte) string {
	const most = 600
	if len(text) > most {
		return string(text[:most]) + "…"
	}
	return string(text)
}
