// Package links keeps a link, which is an agent's tunnel, to every replica of the bridge behind a load balancer.
//
// Invariants:
//   - After the loss of a link, the agent dials within half a second if it has too few links. If a dial is in progress,
//     this time begins when that dial ends. Each dial follows a random pause, so that agents that lost links together
//     do not dial together.
//   - After failures, the pauses grow. Such a pause also ends when a link ends or a bridge sends an announcement.
//   - A link to a draining replica does not count. The agent dials until it has as many other links as the bridge has
//     replicas.
package links

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/version"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
	"github.com/clusterpass/clusterpass/websocket-bridge/mux"
)

// A dial follows a random pause below jitter. After a failure, it follows a growing pause instead, unless a change ends
// that pause. The growing pause doubles from firstPause to maxPause. Each wait is a random time between half of it
// and all of it.
const (
	jitter      = 500 * time.Millisecond
	firstPause  = 500 * time.Millisecond
	maxPause    = 10 * time.Second
	dialTimeout = 15 * time.Second
	// maxReplicas limits the links that a bridge can make an agent open.
	maxReplicas = 64
)

// Config configures a Keeper.
type Config struct {
	Gateway string // URL: https and a host
	Cluster string
	TLS     *tls.Config
	// Dial connects to the gateway, like net.Dialer.DialContext. nil connects directly.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Credential returns the current credential. The Keeper calls it before each attempt to connect, and when the bridge
	// asks for a newer one.
	Credential func(ctx context.Context) (possession.Credential, error)
	Now        func() time.Time // clock for proofs; nil means time.Now

	Target  http.Handler  // serves CONNECT requests of the bridge
	Drain   time.Duration // how long the bridge's connections may continue after the context of Run has ended
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Keeper keeps the agent connected. Create it with New.
type Keeper struct {
	cfg      Config
	id       string // UUID of this process
	dialer   *websocket.Dialer
	changed  chan struct{} // receives a value when a link ends or a bridge sends an announcement
	attempts *prometheus.CounterVec
	serving  sync.WaitGroup

	mu       sync.Mutex
	links    map[string]*link // by the ID of the replica
	replicas int
}

type link struct {
	session  *mux.Session
	draining bool
}

// New returns a Keeper without connections.
func New(cfg Config) *Keeper {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	k := &Keeper{
		cfg: cfg, id: uuid.NewString(), dialer: mux.NewDialer(), changed: make(chan struct{}, 1),
		links: map[string]*link{}, replicas: 1,
	}
	k.dialer.NetDialContext, k.dialer.TLSClientConfig = cfg.Dial, cfg.TLS
	k.attempts = prometheus.NewCounterVec(
		prometheus.CounterOpts{
			Name: "clusterpass_agent_dials_total", Help: "Attempts to connect to the bridge, by result.",
		}, []string{"result"})
	cfg.Metrics.MustRegister(k.attempts,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "clusterpass_agent_links", Help: "Replicas of the bridge that the agent is connected to.",
		}, func() float64 { return float64(k.Links()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "clusterpass_agent_streams", Help: "Connections that the agent carries.",
		}, func() float64 { return float64(k.streams()) }))
	return k
}

// Links returns the number of connected replicas, including draining ones.
func (k *Keeper) Links() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.links)
}

func (k *Keeper) streams() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, l := range k.links {
		n += l.session.NumStreams()
	}
	return n
}

// Run keeps the agent connected until ctx ends. It returns when no connections are left, or after Config.Drain.
func (k *Keeper) Run(ctx context.Context) {
	pause := time.Duration(0)
	for ctx.Err() == nil {
		if k.hasAllLinks() {
			pause = 0
			k.wait(ctx, time.Hour) // until notify is called; after an hour the loop only checks again
			continue
		}
		if pause == 0 {
			k.waitJitter(ctx)
		}
		err := k.dial(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			pause = 0
			continue
		case errors.Is(err, errAlreadyConnected):
			k.cfg.Log.Debug("the load balancer chose a replica that the agent is connected to")
		case errors.Is(err, errUnauthorized):
			k.cfg.Log.Warn("the bridge does not accept the agent's credential", "error", err.Error())
		case errors.Is(err, errNoCredential):
			k.cfg.Log.Warn("the agent has no credential to connect with", "error", err.Error())
		default:
			k.cfg.Log.Warn("the agent cannot connect to the bridge", "error", err.Error())
		}
		pause = min(max(2*pause, firstPause), maxPause)
		if k.wait(ctx, pause/2+rand.N(pause/2)) { //nolint:gosec // jitter needs no secure randomness
			pause = 0
		}
	}
	k.drain()
}

// waitJitter blocks for a random time below jitter, or until ctx ends. Changes do not shorten it, because they reach
// many agents at the same time. waitJitter then clears the notification of such changes, because Run checks all links
// and replicas after the next dial.
func (k *Keeper) waitJitter(ctx context.Context) {
	t := time.NewTimer(rand.N(jitter)) //nolint:gosec // jitter needs no secure randomness
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
	select {
	case <-k.changed:
	default:
	}
}

// wait blocks for d, or until ctx ends or notify is called. It returns true for notify.
func (k *Keeper) wait(ctx context.Context, d time.Duration) (changed bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-k.changed:
		return true
	}
	return false
}

func (k *Keeper) notify() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// hasAllLinks reports whether there are at least as many links as replicas. Links to draining replicas do not count,
// because a new replica may have replaced a draining one. Without a new replica, the agent dials in vain, after growing
// pauses, until a bridge announces a smaller number.
func (k *Keeper) hasAllLinks() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	connected := 0
	for _, l := range k.links {
		if !l.draining {
			connected++
		}
	}
	return connected >= k.replicas
}

// errAlreadyConnected means that the load balancer chose a replica to which the agent is already connected.
var errAlreadyConnected = errors.New("connected already")

var errUnauthorized = errors.New("the credential is refused")

var errNoCredential = errors.New("no credential")

var errNoBridge = errors.New("open a tunnel: the response has no header " + agentserver.ReplicaHeader +
	"; check that the gateway's URL leads to the bridge")

func (k *Keeper) authenticate(ctx context.Context) (http.Header, error) {
	c, err := k.cfg.Credential(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoCredential, err)
	}
	return c.Header(possession.Connect, "", k.cfg.Now())
}

func (k *Keeper) dial(ctx context.Context) error {
	header, err := k.authenticate(ctx) // it has its own deadlines
	if err != nil {
		k.attempts.WithLabelValues("failed").Inc()
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	u, err := url.Parse(k.cfg.Gateway)
	if err != nil {
		return err
	}
	u.Scheme, u.Path = "wss", route.AgentPath(k.cfg.Cluster)
	k.mu.Lock()
	have := make([]string, 0, len(k.links))
	for id := range k.links {
		have = append(have, id)
	}
	k.mu.Unlock()
	header.Set("User-Agent", version.UserAgent())
	header.Set(agentserver.AgentHeader, k.id)
	header.Set(agentserver.HaveHeader, strings.Join(have, ","))
	ws, resp, err := k.dialer.DialContext(ctx, u.String(), header) //nolint:bodyclose // gorilla has closed the connection
	if err != nil {
		err = explain(resp, err)
		result := "failed"
		if errors.Is(err, errAlreadyConnected) {
			result = "connected already"
		}
		k.attempts.WithLabelValues(result).Inc()
		return err
	}
	replica := resp.Header.Get(agentserver.ReplicaHeader)
	if replica == "" {
		k.attempts.WithLabelValues("failed").Inc()
		return errors.Join(errNoBridge, ws.Close())
	}
	k.attempts.WithLabelValues("connected").Inc()
	session, err := mux.Accepter(ws)
	if err != nil {
		return errors.Join(err, ws.Close())
	}
	n, _ := strconv.Atoi(resp.Header.Get(agentserver.ReplicasHeader))
	l := &link{session: session}
	k.mu.Lock()
	if old := k.links[replica]; old != nil {
		_ = old.session.Close() // the replica has closed it, too; see registry.add in package agentserver
	}
	k.links[replica] = l
	k.replicas = min(max(1, n), maxReplicas)
	k.mu.Unlock()
	k.cfg.Log.Info("connected to a replica of the bridge", "replica", replica, "replicas", n)
	k.serving.Go(func() { k.serve(replica, l) })
	return nil
}

// explain returns the error for a response that refuses the websocket. Without a response, it returns err.
func explain(resp *http.Response, err error) error {
	if resp == nil {
		return err
	}
	if resp.StatusCode == http.StatusConflict && resp.Header.Get(agentserver.ReplicaHeader) != "" {
		return errAlreadyConnected
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // gorilla has buffered that much
	if message := status.MessageOf(body); message != "" {
		err = errors.New(message)
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf("%w: %s: %w", errUnauthorized, resp.Status, err)
	}
	return fmt.Errorf("%s: %w", resp.Status, err)
}

func (k *Keeper) serve(replica string, l *link) {
	srv := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), // connections that end are no errors
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPut && r.URL.Path == agentserver.AnnouncementPath:
				k.receiveAnnouncement(w, r, replica, l)
			case r.Method == http.MethodGet && r.URL.Path == agentserver.CredentialPath:
				k.sendCredential(w, r)
			default:
				k.cfg.Target.ServeHTTP(w, r)
			}
		}),
	}
	_ = srv.Serve(l.session) // until the session ends
	_ = srv.Close()
	_ = l.session.Close()
	k.mu.Lock()
	if k.links[replica] == l {
		delete(k.links, replica)
	}
	k.mu.Unlock()
	k.cfg.Log.Info("the link to a replica of the bridge has ended", "replica", replica)
	k.notify()
}

func (k *Keeper) sendCredential(w http.ResponseWriter, r *http.Request) {
	c, err := k.cfg.Credential(r.Context())
	text := string(c.Token.Reveal())
	if err == nil && c.Key != nil {
		var proof string
		proof, err = c.Prove(possession.Connect, "", k.cfg.Now())
		text += "\n" + proof
	}
	if err != nil {
		k.cfg.Log.Warn("the agent cannot send its credential to the bridge", "error", err.Error())
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, text)
}

func (k *Keeper) receiveAnnouncement(w http.ResponseWriter, r *http.Request, replica string, l *link) {
	var a agentserver.Announcement
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<10)).Decode(&a); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	k.mu.Lock()
	k.replicas, l.draining = min(max(1, a.Replicas), maxReplicas), a.Draining
	k.mu.Unlock()
	k.cfg.Log.Info("a replica of the bridge has sent an announcement", "replica", replica, "replicas", a.Replicas,
		"draining", a.Draining)
	w.WriteHeader(http.StatusNoContent)
	k.notify()
}

// drain refuses new connections, waits up to Config.Drain for the open ones, and closes all links.
func (k *Keeper) drain() {
	k.cfg.Log.Info("the agent stops when its connections have ended", "connections", k.streams(),
		"timeout", k.cfg.Drain.String())
	k.mu.Lock()
	for _, l := range k.links {
		_ = l.session.GoAway() // the bridge then opens no more streams
	}
	k.mu.Unlock()
	for deadline := time.Now().Add(k.cfg.Drain); k.streams() > 0 && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
	}
	k.mu.Lock()
	for _, l := range k.links {
		_ = l.session.Close()
	}
	k.mu.Unlock()
	k.serving.Wait()
}
