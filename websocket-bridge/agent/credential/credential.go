// Package credential is an agent's credential: where it is kept, and how it is renewed.
//
// Several agents of one cluster may share it: each takes what another has renewed, and whatever one of them stores last is good.
package credential

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/clusterpass/clusterpass/shared/secrets"
)

// Store keeps a credential beyond the end of a process.
type Store interface {
	Load(ctx context.Context) (secrets.Value, error)
	Save(ctx context.Context, v secrets.Value) error
}

// File is a Store: a path.
type File string

// Load implements Store.
func (f File) Load(context.Context) (secrets.Value, error) {
	data, err := os.ReadFile(string(f))
	return secrets.NewValue([]byte(strings.TrimSpace(string(data)))), err
}

// Save implements Store.
func (f File) Save(_ context.Context, v secrets.Value) error {
	tmp, err := os.CreateTemp(filepath.Dir(string(f)), ".credential-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(v.Reveal())
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), string(f))
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

// Key is the key of the credential in a Secret.
const Key = "token"

// Secret is a Store: a Secret of the agent's cluster, which must exist.
type Secret struct {
	Client          typed.SecretsGetter
	Namespace, Name string
}

// Load implements Store.
func (s *Secret) Load(ctx context.Context) (secrets.Value, error) {
	secret, err := s.Client.Secrets(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return secrets.Value{}, err
	}
	return secrets.NewValue(secret.Data[Key]), nil
}

// Save implements Store.
func (s *Secret) Save(ctx context.Context, v secrets.Value) error {
	_, err := s.Client.Secrets(s.Namespace).Apply(ctx, corev1.Secret(s.Name, s.Namespace).WithData(map[string][]byte{Key: v.Reveal()}),
		metav1.ApplyOptions{FieldManager: "clusterpass-agent", Force: true})
	return err
}

// How a credential is renewed: in the middle of its life, and if that fails again and again until its end.
const (
	callTimeout = 15 * time.Second
	retry       = time.Minute
	maxToken    = 16 << 10
)

// Credential is what an agent authenticates with. It is safe for concurrent use.
type Credential struct {
	Store  Store
	URL    string // where it is renewed
	Client *http.Client
	Log    *slog.Logger

	mu      sync.Mutex
	current secrets.Value
	renewal time.Time
	unsaved bool // the present one is not stored yet
}

// Token is the credential as it is now.
func (c *Credential) Token() secrets.Value {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// Load reads the stored credential.
func (c *Credential) Load(ctx context.Context) error { return c.load(ctx, secrets.Value{}) }

// Reload is Load after a credential was refused: another may be stored by now. Where the refused one is the present one still, any other
// that has not ended is taken. The log says why none can be read.
func (c *Credential) Reload(ctx context.Context, refused secrets.Value) {
	if err := c.load(ctx, refused); err != nil && ctx.Err() == nil {
		c.Log.Warn("no other credential of the agent can be read", "error", err.Error())
	}
}

func (c *Credential) load(ctx context.Context, refused secrets.Value) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	v, err := c.Store.Load(ctx)
	if err != nil {
		return fmt.Errorf("read the agent's credential: %w", err)
	}
	return c.set(v, true, refused)
}

// set takes a credential that begins or ends after the present one: a renewed one, or that of a cluster which has joined again. In place of
// one that was refused it takes any other that has not ended.
func (c *Credential) set(v secrets.Value, stored bool, refused secrets.Value) error {
	begin, end, err := life(v)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	instead := c.current.Equal(refused) && !v.Equal(refused) && time.Now().Before(end)
	if b, e, err := life(c.current); err == nil && !instead && !begin.After(b) && !end.After(e) {
		return nil
	}
	c.current, c.renewal, c.unsaved = v, begin.Add(end.Sub(begin)/2), !stored
	return nil
}

// life is from when until when a credential is good. Whether it is one, the bridge knows.
func life(v secrets.Value) (begin, end time.Time, err error) {
	var claims jwt.Claims
	t, err := jwt.ParseSigned(string(v.Reveal()), []jose.SignatureAlgorithm{jose.ES256})
	if err == nil {
		err = t.UnsafeClaimsWithoutVerification(&claims)
	}
	if err != nil || claims.IssuedAt == nil || claims.Expiry == nil {
		return time.Time{}, time.Time{}, errors.New("the agent's credential is not one that clusterpass cluster join --pull has made") // the parser's error could quote it
	}
	return claims.IssuedAt.Time(), claims.Expiry.Time(), nil
}

// Run renews the credential until ctx ends.
func (c *Credential) Run(ctx context.Context) {
	for {
		c.mu.Lock()
		pause := max(time.Until(c.renewal), time.Second)
		if c.unsaved {
			pause = time.Second
		}
		c.mu.Unlock()
		if !sleep(ctx, pause) {
			return
		}
		if err := c.Renew(ctx); err != nil && ctx.Err() == nil {
			if errors.Is(err, errUnsaved) {
				c.Log.Warn("the agent's credential is renewed, and cannot be stored now", "error", err.Error())
			} else {
				c.Log.Warn("the agent's credential cannot be renewed now", "error", err.Error())
			}
			begin, end, _ := life(c.Token()) // set has seen it
			if !sleep(ctx, min(retry, end.Sub(begin)/10)) {
				return
			}
		}
	}
}

// errUnsaved says that the present credential is good, and not stored.
var errUnsaved = errors.New("the new credential is not stored")

// Renew takes what another agent has stored, or asks the bridge for the next credential and stores it. One that could not be stored before
// is stored now, unless it is unknown what it would replace.
func (c *Credential) Renew(ctx context.Context) error {
	unread := c.Load(ctx) // where that fails, the bridge may still answer
	c.mu.Lock()
	due, unsaved := time.Until(c.renewal) <= 0, c.unsaved
	c.mu.Unlock()
	if !due && !unsaved {
		return nil
	}
	if !due && unread != nil {
		return fmt.Errorf("%w: %w", errUnsaved, unread)
	}
	if due {
		next, err := c.ask(ctx)
		if err == nil {
			err = c.set(next, false, secrets.Value{})
		}
		if err != nil {
			return err
		}
		c.Log.Info("the agent's credential is renewed")
	}
	present := c.Token()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := c.Store.Save(ctx, present); err != nil {
		return fmt.Errorf("%w: %w", errUnsaved, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current.Equal(present) {
		c.unsaved = false
	}
	return nil
}

func (c *Credential) ask(ctx context.Context) (secrets.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, nil)
	if err != nil {
		return secrets.Value{}, err
	}
	req.Header.Set("Authorization", "Bearer "+string(c.Token().Reveal()))
	resp, err := c.Client.Do(req)
	if err != nil {
		return secrets.Value{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxToken))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the bridge answers %s: %.300s", resp.Status, body)
	}
	return secrets.NewValue(body), err
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
