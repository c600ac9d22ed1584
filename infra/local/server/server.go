package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	controlfn "github.com/clusterpass/clusterpass/functions/control"
	"github.com/clusterpass/clusterpass/functions/fleet"
	"github.com/clusterpass/clusterpass/functions/proxy"
	"github.com/clusterpass/clusterpass/infra/local/frontdoor"
	"github.com/clusterpass/clusterpass/infra/local/lambda"
	"github.com/clusterpass/clusterpass/infra/local/lambda/event"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/control"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/health"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/lambdahttp"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/kmssigner"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/websocket-bridge/agents"
	"github.com/clusterpass/clusterpass/websocket-bridge/quota"
	bridge "github.com/clusterpass/clusterpass/websocket-bridge/server"
)

// targetGroup is what the local front door calls itself in the events that it sends to functions.
const targetGroup = "arn:aws:elasticloadbalancing:local:000000000000:targetgroup/clusterpass/0000000000000000"

// How functions run here. AWS allows more processes and keeps them for longer.
const (
	functionTimeout = 29 * time.Second
	maxProcesses    = 64
	maxPerCluster   = maxProcesses / 4
	maxPerCaller    = maxProcesses / 2
	queuePerCaller  = maxProcesses
	queueTimeout    = 10 * time.Second
	maxQueue        = 4 * maxProcesses
	maxIdle         = 5 * time.Minute
)

// Run serves until ctx ends. out gets progress and the next command to type, for people; ready is called once calls are
// accepted.
func Run(ctx context.Context, cfg *Config, out io.Writer, ready func()) error {
	if cfg.LogTo == nil {
		cfg.LogTo = os.Stderr
	}
	if cfg.Store.Kind == "" {
		cfg.Store = stores.Address{Kind: "dir", Where: cfg.Data}
	}
	serverCA, err := pki.LoadCA(filepath.Join(cfg.Data, "pki"), "server-ca")
	if err != nil {
		return &config.Error{Variable: "CLUSTERPASS_DATA", Problem: err.Error(), Example: "/var/lib/clusterpass"}
	}
	clientCA, err := pki.LoadCA(filepath.Join(cfg.Data, "pki"), "client-ca")
	if err != nil {
		return err
	}
	env := gateway.Env{
		Store:          cfg.Store,
		ClientCA:       gateway.CertificatesOf(clientCA.Cert),
		AllowLoopback:  !cfg.RefuseLoopback,
		LogLevel:       cfg.LogLevel,
		LogTo:          cfg.LogTo,
		Auditing:       cfg.Auditing,
		Authentication: cfg.Authentication,
		Origins:        cfg.Origins,
	}
	pass, err := prepare(ctx, cfg, env, out)
	if err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("CLUSTERPASS_LISTEN: %w", err)
	}
	defer func() { _ = ln.Close() }()
	host, _, _ := net.SplitHostPort(cfg.Listen) // Validate has seen it
	hosts := append(slices.Clone(cfg.Hosts), "localhost", "127.0.0.1", "::1")
	if host != "" && !net.ParseIP(host).IsUnspecified() {
		hosts = append([]string{host}, hosts...)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	url := "https://" + net.JoinHostPort(hosts[0], port)
	env.URL = config.URL(url)
	b := bridge.New(cfg.Limits)
	door, closeDoor, err := open(ctx, cfg, env, b, serverCA, clientCA)
	if err != nil {
		return err
	}
	defer closeDoor()

	cert, err := serverCA.Server(filepath.Join(cfg.Data, "pki"), "server", hosts)
	if err != nil {
		return err
	}
	if err := writeKubeconfig(cfg.Kubeconfig, url, ownerName(), serverCA, clientCA, pass); err != nil {
		return &config.Error{Variable: "CLUSTERPASS_KUBECONFIG", Problem: err.Error(), Example: "clusterpass.kubeconfig"}
	}
	sayNext(out, url, cfg.Kubeconfig, pass.current)
	ready() // the listener queues what comes before Serve

	srv := cfg.HTTPServer(door)
	srv.ErrorLog = slog.NewLogLogger(slog.NewJSONHandler(cfg.LogTo, nil), slog.LevelDebug)
	return b.Serve(ctx, srv, func() error { return srv.Serve(tls.NewListener(ln, frontdoor.TLS(cert))) }, bridge.Drain{Timeout: cfg.DrainTimeout})
}

// prepare registers what is to be registered and returns all clusters.
func prepare(ctx context.Context, cfg *Config, env gateway.Env, out io.Writer) (members, error) {
	var m members
	st, err := stores.Open(ctx, env.Store)
	if err != nil {
		return m, &config.Error{Variable: "CLUSTERPASS_STORE", Problem: err.Error(), Example: "dir:/var/lib/clusterpass"}
	}
	r := &registration.Registrar{Secrets: st.Secrets, Objects: st.Objects, Policy: cluster.DialPolicy{AllowLoopback: env.AllowLoopback}}
	var namespaces map[string]string
	if cfg.Register != "" {
		_, _ = fmt.Fprintf(out, "Registering the contexts of %s:\n", cfg.Register)
		if namespaces, m.current, err = register(ctx, out, cfg.Register, ownerName(), r); err != nil {
			return m, err
		}
	}
	clusters, err := r.Clusters(ctx)
	for _, c := range clusters {
		m.all = append(m.all, kubeconfig.Context{Cluster: c.Name, Namespace: namespaces[c.Name]})
		if _, now := namespaces[c.Name]; m.current == "" && now {
			m.current = c.Name
		}
	}
	if m.current == "" && len(m.all) > 0 {
		m.current = m.all[0].Cluster
	}
	return m, err
}

// open makes the front door with the bridge and the functions behind it.
func open(ctx context.Context, cfg *Config, env gateway.Env, b *bridge.Bridge, serverCA, clientCA *pki.CA) (*frontdoor.Door, func(), error) {
	ofBridge := env
	ofBridge.Stream, ofBridge.Hold, ofBridge.Admit, ofBridge.AdmitTo = b.Stream, b.Hold, b.Admit, b.AdmitTo
	ofBridge.Source, ofBridge.Unverified, ofBridge.Recheck = cfg.Source, b.Unverified(), cfg.Recheck
	api := control.Options{ServerCA: gateway.CertificatesOf(serverCA.Cert), PassLimits: cfg.PassLimits}
	ofBridge.Fleet, ofBridge.Root = cfg.Fleet, api.Root(env.URL, cfg.ControlPlane)
	ofBridge.Public = api.Public(env.Authentication)
	st, err := stores.Open(ctx, env.Store)
	if err != nil {
		return nil, nil, err
	}
	if err := passes.StoreCA(ctx, st.Secrets, clientCA); err != nil {
		return nil, nil, err
	}
	log := slog.New(slog.NewJSONHandler(cfg.LogTo, &slog.HandlerOptions{Level: cfg.LogLevel}))
	closers := []func(){}
	closeAll := func() {
		for _, fn := range closers {
			fn()
		}
	}
	private, closePrivate, err := openPrivate(ctx, cfg, env, b, st, log)
	if err != nil {
		return nil, nil, err
	}
	closers = append(closers, closePrivate)
	ofBridge.Tunnel = private
	gw, members, err := ofBridge.Open(ctx, identity.TLSPeer, nil)
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	private.RecordTo(gw.AuditLog())
	signer, err := kmssigner.Open(ctx, cfg.PassKMSKey)
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	stopMaintenance := bridge.Maintain(ctx, &passes.Issuer{Objects: st.Objects, Secrets: st.Secrets, Signer: signer}, log)
	stopProbes := bridge.Probe(ctx, &health.Prober{Objects: st.Objects, Members: members, Log: log}, cfg.ProbeInterval)
	door := &frontdoor.Door{
		Functions: map[route.Backend]http.Handler{}, Bridge: private.Handler(gw), PerCluster: quota.New(0, maxPerCluster),
		Source: cfg.Source,
	}
	caller := frontdoor.CallerKey(env.ClientCA.Pool(), cfg.Source)
	closers = append(closers, stopMaintenance, stopProbes, members.Close, func() { _ = bridge.CloseGateway(gw) })
	for _, backend := range []route.Backend{route.ToProxy, route.ToFleet, route.ToControl} {
		invoker, closeFn, err := function(ctx, cfg, env, api, clientCA, backend)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		closers = append(closers, closeFn)
		target := lambda.Target{Invoker: invoker, Front: event.ALB{TargetGroupARN: targetGroup}}
		door.Functions[backend] = frontdoor.NewShares(maxPerCaller, queuePerCaller, queueTimeout).Limit(target, caller)
	}
	return door, closeAll, nil
}

// openPrivate opens the tunnel port, if the configuration has one, and what agents of private clusters connect to. Agents hear of the end of
// ctx at once, and lose their tunnels when all is closed.
func openPrivate(ctx context.Context, cfg *Config, env gateway.Env, b *bridge.Bridge, st *stores.Stores, log *slog.Logger) (*agents.Agents, func(), error) {
	private := cfg.Agents(b, env.Store, st, string(env.URL), cfg.Recheck, log)
	if cfg.TunnelListen == "" {
		return private, private.Close, nil
	}
	closePort, err := bridge.ListenTunnel(ctx, private, cfg.TunnelListen)
	if err != nil {
		private.Close()
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { private.Drain(context.WithoutCancel(ctx)) })
	return private, func() { stop(); _ = closePort(); private.Close() }, nil
}

// function runs one of functions/ as processes, as Lambda does, or inline, still through its events.
func function(ctx context.Context, cfg *Config, env gateway.Env, api control.Options, clientCA *pki.CA, backend route.Backend) (lambda.Invoker, func(), error) {
	if cfg.Functions == Inline {
		of := proxy.Config{Env: env, MTLSTargetGroup: targetGroup}
		open := func() (http.Handler, lambdahttp.Options, error) { return proxy.New(ctx, &of, false) }
		switch backend {
		case route.ToFleet:
			open = func() (http.Handler, lambdahttp.Options, error) {
				return fleet.New(ctx, &fleet.Config{Config: of, Settings: cfg.Settings}, false)
			}
		case route.ToControl:
			open = func() (http.Handler, lambdahttp.Options, error) {
				return controlfn.New(ctx, controlfn.Config{Config: fleet.Config{Config: of, Settings: cfg.Settings}, Options: api}, false)
			}
		}
		handler, opts, err := open()
		if err != nil {
			return nil, nil, err
		}
		return lambda.Inline{Function: lambdahttp.New(handler, opts), Timeout: functionTimeout}, func() {}, nil
	}
	bootstrap := filepath.Join(cfg.FunctionsDir, string(backend), "bootstrap")
	if _, err := os.Stat(bootstrap); err != nil {
		return nil, nil, &config.Error{Variable: "CLUSTERPASS_FUNCTIONS_DIR", Problem: err.Error() + " (make build-local builds it)", Example: "dist/local/functions"}
	}
	vars := map[string]string{
		"CLUSTERPASS_STORE":             env.Store.String(),
		"CLUSTERPASS_CLIENT_CA":         string(clientCA.PEM()),
		"CLUSTERPASS_MTLS_TARGET_GROUP": targetGroup,
		"CLUSTERPASS_ALLOW_LOOPBACK":    strconv.FormatBool(env.AllowLoopback),
		"CLUSTERPASS_LOG_LEVEL":         env.LogLevel.String(),
		"CLUSTERPASS_URL":               string(env.URL),
		"CLUSTERPASS_AUTHENTICATION":    cfg.Authentication.String(),
		"CLUSTERPASS_CONTROL_PLANE":     cfg.ControlPlane,
		"CLUSTERPASS_WEBSOCKET_ORIGINS": strings.Join(cfg.Origins, ","),
	}
	maps.Copy(vars, cfg.Environment())
	if backend == route.ToControl {
		vars["CLUSTERPASS_SERVER_CA"] = string(api.ServerCA.PEM())
		if cfg.MaxPassTTL > 0 {
			vars["CLUSTERPASS_MAX_PASS_TTL"] = cfg.MaxPassTTL.String()
		}
	}
	if cfg.FleetDeadline > 0 {
		vars["CLUSTERPASS_FLEET_DEADLINE"] = cfg.FleetDeadline.String()
	}
	if cfg.BareWrites != "" {
		vars["CLUSTERPASS_FLEET_BARE_WRITES"] = string(cfg.BareWrites)
	}
	fn, err := lambda.NewFunction(lambda.Config{
		Name:           string(backend),
		Bootstrap:      bootstrap,
		Env:            vars,
		Timeout:        functionTimeout,
		InitTimeout:    functionTimeout, // AWS itself begins a start that takes too long anew, and gives it this
		MaxConcurrency: maxProcesses,
		MaxQueue:       maxQueue,
		QueueTimeout:   queueTimeout,
		MaxIdle:        maxIdle,
		Output:         cfg.LogTo,
	})
	if err != nil {
		return nil, nil, err
	}
	return fn, func() { _ = fn.Close(context.WithoutCancel(ctx)) }, nil
}

func sayNext(out io.Writer, url, kubeconfig, current string) {
	_, _ = fmt.Fprintf(out, "\nThe gateway is at %s\n", url)
	if current == "" {
		_, _ = fmt.Fprintf(out, "It has no clusters yet. Stop it and start it with the contexts of a kubeconfig:\n\n  KUBECONFIG=~/.kube/config make up\n\n")
		return
	}
	_, _ = fmt.Fprintf(out, "Your pass is %s, with a context for each cluster. Next:\n\n  kubectl --kubeconfig %s --context %s get nodes\n\nctrl-C ends the gateway.\n",
		kubeconfig, kubeconfig, current)
}
