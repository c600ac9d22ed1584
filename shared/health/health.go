// Package health probes member clusters, and writes the condition Ready and the Kubernetes version to their status. It
// writes only changes, since all gateways read the object again after every write.
package health

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/status"
)

const (
	atOnce      = 16
	pageSize    = 500
	maxMessage  = 300
	readyReason = "ClusterReady" // Karmada's
)

// Timeout is the default of Prober.Timeout.
const Timeout = 5 * time.Second

// Prober probes members. It is safe for concurrent use.
type Prober struct {
	Objects objects.Store
	Members *cluster.Members
	Log     *slog.Logger
	Timeout time.Duration // of one probe; 0 means Timeout
}

func (p *Prober) timeout() time.Duration { return cmp.Or(p.Timeout, Timeout) }

// Run probes all members every interval until ctx ends. The interval varies by a fifth, so that several bridges do not
// synchronize.
func (p *Prober) Run(ctx context.Context, interval time.Duration) {
	for {
		if err := p.all(ctx); err != nil && ctx.Err() == nil {
			p.Log.Warn("members cannot be probed", "error", err.Error())
		}
		pause := time.Duration(float64(interval) * (0.8 + 0.4*rand.Float64())) //nolint:gosec // jitter needs no secrecy
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (p *Prober) all(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	var mu sync.Mutex
	var failed error
	for cont := ""; ; {
		page, err := p.Objects.List(ctx, v1alpha1.Prefix, pageSize, cont)
		if err != nil {
			failed = errors.Join(failed, err)
			break
		}
		probing := cluster.WithBuffer(ctx, cluster.BufferOf(len(page.Objects)))
		for _, o := range page.Objects {
			group.Go(func() error {
				if _, err := p.Probe(probing, strings.TrimPrefix(o.Key, v1alpha1.Prefix)); err != nil &&
					!errors.Is(err, objects.ErrNotFound) {
					mu.Lock()
					defer mu.Unlock()
					failed = err // one error of many is sufficient
				}
				return nil
			})
		}
		if cont = page.Continue; cont == "" {
			break
		}
	}
	_ = group.Wait() // failed contains the error
	return failed
}

// Probe probes one member and stores a changed result. Its error is the store's or that of ctx.
func (p *Prober) Probe(ctx context.Context, name string) (ready bool, err error) {
	began := time.Now()
	version, found := p.probeVersion(ctx, name)
	latency := time.Since(began)
	if ctx.Err() != nil { // nothing was learnt
		return false, ctx.Err()
	}
	for {
		o, err := p.Objects.Get(ctx, v1alpha1.Prefix+name)
		if err != nil {
			return false, err
		}
		c, err := v1alpha1.Decode(o.Key, o.Value)
		if err != nil {
			return false, err
		}
		before := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.Ready)
		// The text of a failure may differ each time, by ports for instance: that alone is no news.
		known := before != nil && before.Status == found.Status && before.Reason == found.Reason
		if known && (version == "" || version == c.Status.KubernetesVersion) {
			return found.Status == metav1.ConditionTrue, nil
		}
		if version != "" {
			c.Status.KubernetesVersion = version
		}
		c.Status.Probe = &v1alpha1.Probe{
			Time: metav1.NewTime(began).Rfc3339Copy(), Latency: metav1.Duration{Duration: latency.Round(time.Millisecond)},
		}
		found.ObservedGeneration = c.Generation
		meta.SetStatusCondition(&c.Status.Conditions, found)
		value, err := json.Marshal(c)
		if err != nil {
			return false, err
		}
		if _, err = p.Objects.Update(ctx, o.Key, value, o.Revision); err == nil {
			p.Log.Info("a member's health has changed", "cluster", name, "ready", string(found.Status), "reason", found.Reason)
			return found.Status == metav1.ConditionTrue, nil
		} else if !errors.Is(err, objects.ErrConflict) {
			return false, err
		}
	}
}

func (p *Prober) probeVersion(ctx context.Context, name string) (version string, found metav1.Condition) {
	ctx, cancel := context.WithTimeout(cluster.AsProbe(ctx), p.timeout())
	defer cancel()
	began := time.Now()
	m, err := p.Members.Get(ctx, name)
	if err == nil {
		version, err = cluster.ServerVersion(func(out any) error {
			return p.Members.Call(ctx, m, http.MethodGet, "/version", nil, out)
		})
		var answered *cluster.CallError
		// The member is reachable if only callers have a credential, or if only their requests run the plugin that renews it.
		lacksCredential := m.Cluster.Mode() == v1alpha1.Passthrough || m.Credential.Plugin != nil
		if lacksCredential && errors.As(err, &answered) && answered.Code == http.StatusUnauthorized {
			err = nil
		}
	}
	if err == nil {
		return version, metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionTrue, Reason: readyReason,
			Message: fmt.Sprintf("the API server answered within %s", time.Since(began).Round(time.Millisecond))}
	}
	reason, message := why(err, p.timeout())
	return "", metav1.Condition{
		Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: string(reason), Message: message,
	}
}

// why returns the reason and message of the condition. The reason is that of a request that fails alike.
func why(err error, timeout time.Duration) (status.Reason, string) {
	var known *status.Error
	var answered *cluster.CallError
	switch {
	case errors.As(err, &known):
		return known.Reason, known.Message
	case errors.As(err, &answered) && answered.Code == http.StatusUnauthorized:
		return status.CredentialRefused, "the API server refuses the stored credential (401)"
	case errors.As(err, &answered):
		return status.Unreachable, fmt.Sprintf("the API server answers %d %s", answered.Code, http.StatusText(answered.Code))
	case errors.Is(err, context.DeadlineExceeded):
		return status.Timeout, fmt.Sprintf("the API server did not answer within %s", timeout)
	}
	message := err.Error()
	return status.Unreachable, message[:min(len(message), maxMessage)]
}
