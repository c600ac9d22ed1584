// Package clienttest sends the requests of tests as a client-go client does.
package clienttest

import (
	"io"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"
)

// Get sends a GET request as the user of cfg, on a connection of its own. path may have a query, and is sent as it is.
func Get(tb testing.TB, cfg *rest.Config, path string) (code int, body string) {
	tb.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, cfg.Host+path, http.NoBody)
	if err != nil {
		tb.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, string(text)
}
