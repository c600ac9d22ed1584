package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/test/cluster"
)

// compact removes a cluster's history by etcd's gateway for JSON, on its socket.
func compact(ctx context.Context, set *cluster.Set, m *member) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	// The path of a socket is limited in length, that of a working directory is not.
	link, err := os.MkdirTemp("", "fc-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(link) }()
	socket := filepath.Join(link, "etcd")
	if err := os.Symlink(filepath.Join(set.Dir(), m.name, "etcd.sock:0"), socket); err != nil {
		return err
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var now struct{ Header struct{ Revision string } }
	if err := post(ctx, client, "/v3/kv/range", `{"key": "AA=="}`, &now); err != nil {
		return fmt.Errorf("read the revision of %s: %w", m.name, err)
	}
	body := fmt.Sprintf(`{"revision": %q, "physical": true}`, now.Header.Revision)
	err = post(ctx, client, "/v3/kv/compaction", body, nil)
	if err != nil && strings.Contains(err.Error(), "has been compacted") { // nothing was written since
		return nil
	}
	if err != nil {
		return fmt.Errorf("compact %s: %w", m.name, err)
	}
	return nil
}

func post(ctx context.Context, client *http.Client, path, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd"+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("code %d: %s", resp.StatusCode, head(text))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}
