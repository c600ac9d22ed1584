// Package plugin runs the credential plugins of the user's own kubeconfig, so that the gateway reaches clusters as that
// user's kubectl does. client-go's code decides when a plugin runs, and reads its result. [Open] returns a [Plugin] for
// a context. Call [Main] first in a program that uses it: each plugin runs below a process of that program.
//
//   - The definition of a plugin stays in memory. It is neither stored nor printed, except for the name of the program.
//   - Errors contain no output of a plugin, which may be a token.
//   - Only requests of users run a plugin. After a failure it pauses for some seconds.
//   - A run has limits of time and output. It ends with the gateway.
//
// docs/explanation/security.md describes what a plugin may do.
package plugin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// Options configure the runs of a plugin. Zero values mean the defaults.
type Options struct {
	Limit time.Duration // after which a run is killed: 5 minutes, since a person may have to sign in
	Wait  time.Duration // that a caller waits for a run, which then continues: 1 minute
	// Pause is the time after a run in which a failed plugin, or one whose credential was refused, does not run again: 5
	// seconds. kubectl sends several requests for one command.
	Pause time.Duration
	// LockDir has the lock of the terminal, which plugins use one after the other. Only the user may write there. Empty
	// means no lock.
	LockDir string
}

// Plugin is the credential plugin of one context. It implements kubeconfig.Plugin.
type Plugin struct {
	name, hint string
	options    Options
	authorize  http.RoundTripper // of client-go: adds the credential to a request, and passes it to a recorder
	getCert    func() (*tls.Certificate, error)
	flights    singleflight.Group

	mu     sync.Mutex
	latest kubeconfig.PluginCredential
	err    error     // the result of the latest run
	ran    time.Time // the time of the latest run
}

// Open returns the plugin of the current context of a flat kubeconfig, and that kubeconfig without the definition. It
// returns nil if the context has no plugin, or one that the gateway replaces, as for Amazon EKS. A kubeconfig that also
// has another credential, or impersonates, is left to package kubeconfig, which refuses it.
func Open(value secrets.Value, options Options) (*Plugin, secrets.Value, error) {
	all, err := clientcmd.Load(value.Reveal())
	if err != nil {
		return nil, value, errors.New("not the YAML or JSON of a kubeconfig") // the parser's error may quote a credential
	}
	user := userOf(all)
	if user == nil || user.Exec == nil {
		return nil, value, nil
	}
	if _, err := kubeconfig.Parse(value.Reveal(), kubeconfig.Options{}); err == nil {
		return nil, value, nil
	}
	others := user.DeepCopy()
	others.Exec, others.Extensions, others.LocationOfOrigin = nil, nil, ""
	if !equality.Semantic.DeepEqual(others, &clientcmdapi.AuthInfo{}) {
		return nil, value, nil
	}
	stored, err := withoutDefinition(all)
	if err != nil {
		return nil, value, err
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*all, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, value, fmt.Errorf("its credential plugin cannot be used: %w", err)
	}
	p, err := newPlugin(cfg, options)
	if err != nil {
		return nil, value, err
	}
	return p, stored, nil
}

func userOf(all *clientcmdapi.Config) *clientcmdapi.AuthInfo {
	if c := all.Contexts[all.CurrentContext]; c != nil {
		return all.AuthInfos[c.AuthInfo]
	}
	return nil
}

// withoutDefinition drops all extensions, too. The cluster's may be a part of the definition.
func withoutDefinition(all *clientcmdapi.Config) (secrets.Value, error) {
	context := all.Contexts[all.CurrentContext]
	cluster := clientcmdapi.NewCluster()
	if c := all.Clusters[context.Cluster]; c != nil {
		cluster = c.DeepCopy()
		cluster.Extensions = nil
	}
	out := clientcmdapi.NewConfig()
	out.CurrentContext = all.CurrentContext
	out.Contexts[all.CurrentContext] = &clientcmdapi.Context{Cluster: context.Cluster}
	out.Clusters[context.Cluster] = cluster
	data, err := clientcmd.Write(*out)
	return secrets.NewValue(data), err
}

func newPlugin(cfg *rest.Config, o Options) (*Plugin, error) {
	if !isSupervisor.Load() {
		return nil, errors.New("this program runs no credential plugins")
	}
	exec := cfg.ExecProvider
	p := &Plugin{name: exec.Command, hint: exec.InstallHint, options: Options{
		Limit: orDefault(o.Limit, 5*time.Minute), Wait: orDefault(o.Wait, time.Minute),
		Pause: orDefault(o.Pause, 5*time.Second), LockDir: o.LockDir,
	}}
	exec.Args = supervised(p.options, exec.Command, exec.Args)
	exec.Command = ownProgram()
	transport, err := cfg.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("its credential plugin cannot be used: %w", err)
	}
	p.authorize = transport.WrapTransport(recorder{})
	p.getCert = transport.TLS.GetCertHolder.GetCert
	return p, nil
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// Name returns the command of the definition, a name or a path. It is no secret, as opposed to arguments and
// environment.
func (p *Plugin) Name() string { return p.name }

// InstallHint returns the text of the definition about how to install the program, or "".
func (p *Plugin) InstallHint() string { return p.hint }

// Format implements fmt.Formatter for every verb. It prints only the name.
func (p *Plugin) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "credential plugin %q", p.name) }

// Credential implements kubeconfig.Plugin.
func (p *Plugin) Credential(ctx context.Context) (kubeconfig.PluginCredential, error) {
	p.mu.Lock()
	err := p.err
	if time.Since(p.ran) > p.options.Pause {
		err = nil
	}
	p.mu.Unlock()
	if err != nil {
		return kubeconfig.PluginCredential{}, err
	}
	if err := p.share(ctx, "credential", func() { p.request(http.StatusOK) }); err != nil {
		return kubeconfig.PluginCredential{}, err
	}
	return p.Latest()
}

// Latest implements kubeconfig.Plugin.
func (p *Plugin) Latest() (kubeconfig.PluginCredential, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest, p.err
}

// Renew implements kubeconfig.Plugin.
func (p *Plugin) Renew(ctx context.Context, refusedToken string) bool {
	before, _ := p.Latest()
	if before.Token != refusedToken {
		return true
	}
	p.mu.Lock()
	isRecent := time.Since(p.ran) < p.options.Pause
	p.mu.Unlock()
	if isRecent { // no header shows which certificate was refused: it may have been the previous one
		return before.Certificate != nil
	}
	if err := p.share(ctx, "renewal", func() {
		p.request(http.StatusUnauthorized) // client-go then runs the plugin, unless its credential is newer already
		p.request(http.StatusOK)
	}); err != nil {
		return false
	}
	now, err := p.Latest()
	return err == nil && (now.Token != before.Token || now.Certificate != before.Certificate)
}

// share calls f once for concurrent callers. After ctx or Options.Wait it returns, and f continues.
func (p *Plugin) share(ctx context.Context, name string, f func()) error {
	ctx, cancel := context.WithTimeout(ctx, p.options.Wait)
	defer cancel()
	select {
	case <-p.flights.DoChan(name, func() (any, error) { f(); return nil, nil }):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the credential plugin: %w", context.Cause(ctx))
	}
}

// request lets client-go add the credential to a request with a response of that code. client-go runs the plugin before
// the request if it needs one, and after a 401.
func (p *Plugin) request(code int) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://recorder.invalid", http.NoBody)
	if err != nil {
		panic(err) // the URL is constant
	}
	r.Header.Set(codeHeader, strconv.Itoa(code))
	before, _ := p.Latest()
	var credential kubeconfig.PluginCredential
	resp, err := p.authorize.RoundTrip(r)
	if err == nil {
		_ = resp.Body.Close()
		credential.Token = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		credential.Certificate, err = p.getCert()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.err, p.ran = describe(err), time.Now()
		return
	}
	if code == http.StatusUnauthorized || credential != before {
		p.ran = time.Now()
	}
	if p.err = nil; code == http.StatusOK {
		p.latest = credential
	}
}

// codeHeader is the status code that recorder returns.
const codeHeader = "X-Code"

// recorder is the transport below client-go's. It sends nothing.
type recorder struct{}

func (recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	code, err := strconv.Atoi(r.Header.Get(codeHeader))
	return &http.Response{StatusCode: code, Body: http.NoBody, Request: r}, err
}

// ErrMissing is the error of a plugin whose program cannot be started.
var ErrMissing = errors.New("its program cannot be started: it is missing, or not in the PATH of the gateway")

var exitCode = regexp.MustCompile(`failed with exit code (\d+)$`)

// describe explains an error of client-go without quoting it. An error about the output would contain the output.
func describe(err error) error {
	const inTerminal = "; its own messages are at the terminal or in the log of the gateway"
	text := err.Error()
	if match := exitCode.FindStringSubmatch(text); match != nil {
		code, _ := strconv.Atoi(match[1]) // the expression matches digits only
		if code == codeMissing {
			return ErrMissing
		}
		if reason, ok := reasons[code]; ok {
			return errors.New(reason)
		}
		return fmt.Errorf("it exited with code %d%s", code, inTerminal)
	}
	switch {
	case strings.Contains(text, "interactive mode: "):
		_, why, _ := strings.Cut(text, "interactive mode: ")
		return fmt.Errorf("it needs a terminal (interactiveMode: Always), and the gateway has none (%s); run the gateway in "+
			"one", why)
	case strings.Contains(text, "configured to use API version"):
		return errors.New("it returned another API version than its definition names")
	case strings.Contains(text, "decoding stdout"), strings.Contains(text, "exec plugin "),
		strings.Contains(text, "failed parsing client"):
		return errors.New("it returned no valid token or certificate")
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return errors.New("the gateway cannot start itself to run it; start the gateway again")
	}
	return errors.New("it could not be run" + inTerminal)
}
