package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/registration"
)

// Values of --agent-format.
const (
	formatManifest = "manifest"
	formatValues   = "values"
)

const defaultImage = "clusterpass-agent"

type private struct {
	pull                          bool
	gateway, tunnel, image, proxy string
	format                        string
	services                      []string
	lifetime                      time.Duration

	to kubeconfig.Gateway
}

func (p *private) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&p.pull, "pull", false, "register a private cluster, and print the manifest of its agents")
	f.StringVar(&p.gateway, "gateway", "clusterpass.kubeconfig",
		"with --pull: kubeconfig from the gateway, with its URL and CA")
	f.StringVar(&p.tunnel, "tunnel", "",
		"with --pull: URL of the bridge's tunnel port as the functions reach it (default with a dir: store: "+
			"https://127.0.0.1:8444)")
	f.StringVar(&p.image, "agent-image", defaultImage,
		"with --pull: image of the agent, which the cluster's nodes must be able to pull")
	f.StringVar(&p.format, "agent-format", formatManifest,
		"with --pull: form of the output: manifest, or values for the Helm chart infra/kubernetes/clusterpass-agent")
	f.StringVar(&p.proxy, "agent-proxy", "",
		"with --pull: URL of the agents' proxy to the gateway, optionally with user and password; it is stored in their "+
			"Secret")
	f.StringSliceVar(&p.services, "agent-service", nil,
		"with --pull: another host:port that the gateway may reach through the agents, e.g. the API server of a cluster, "+
			"as in its kubeconfig; may be repeated")
	f.DurationVar(&p.lifetime, "agent-token-lifetime", passes.MaxTTL,
		"with --pull: lifetime of the agents' credential, 1m to 168h; they renew it after half of it")
}

// complete validates the options and sets defaults, before anything is created.
func (p *private) complete(a *app, s *source) (err error) {
	if !p.pull {
		return nil
	}
	if err := p.validate(); err != nil {
		return err
	}
	if p.to, err = kubeconfig.Read(p.gateway); err != nil {
		return fmt.Errorf("%w; name a kubeconfig of the gateway with --gateway", err)
	}
	if err := new(config.URL).Decode(p.to.URL); err != nil || p.to.URL == "" {
		// The error must not quote the URL, which may contain a secret.
		return fmt.Errorf("--gateway: the gateway's URL in %s: want https:// and a host, without a path", p.gateway)
	}
	if s.tunnel = p.tunnel; s.tunnel != "" {
		return nil
	}
	addr, err := a.address()
	if err == nil && addr.Kind != "dir" {
		err = fmt.Errorf("--tunnel: name the bridge's tunnel port, such as https://bridge.clusterpass.internal:8444")
	}
	s.tunnel = "https://127.0.0.1:8444"
	return err
}

// validate checks the options that depend on nothing else.
func (p *private) validate() error {
	if p.lifetime < passes.MinTTL || p.lifetime > passes.MaxTTL {
		return fmt.Errorf("--agent-token-lifetime %v: want %v to %v", p.lifetime, passes.MinTTL, passes.MaxTTL)
	}
	if u, err := url.Parse(p.proxy); p.proxy != "" &&
		(err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme)) {
		return errors.New(
			"--agent-proxy: want a URL such as http://proxy.example.com:3128, or http://USER:PASSWORD@proxy.example.com:3128")
	}
	switch {
	case p.format != formatManifest && p.format != formatValues:
		return fmt.Errorf("--agent-format %q: want %s or %s", p.format, formatManifest, formatValues)
	case p.format == formatValues && p.image != defaultImage:
		return errors.New("--agent-image: the Helm chart has values of its own for the image; set image.repository and " +
			"image.tag there")
	}
	for _, service := range p.services {
		if err := config.Address("--agent-service", service); err != nil {
			return err
		}
	}
	if u, err := url.Parse(p.tunnel); err != nil || strings.Trim(u.Path, "/") != "" {
		return errors.New(
			"--tunnel: want the URL of the tunnel port alone, such as https://bridge.clusterpass.internal:8444: the cluster " +
				"gets agents of its own")
	}
	return nil
}

// noteImage prints a note if the manifest has the default image, which is in no registry.
func (p *private) noteImage(w io.Writer) error {
	if p.format != formatManifest || p.image != defaultImage {
		return nil
	}
	_, err := fmt.Fprintf(w, `note: the agents start only on nodes that already have the image %s.
Name an image that the nodes can pull: --agent-image registry.example.com/clusterpass-agent:v1
`, p.image)
	return err
}

//go:embed agent.yaml
var agentYAML string

var agentManifest = template.Must(template.New("agent").Funcs(template.FuncMap{
	"base64": func(b []byte) string { return base64.StdEncoding.EncodeToString(b) },
}).Parse(agentYAML))

// agentValues are values of the chart clusterpass-agent.
type agentValues struct {
	Cluster  string       `json:"cluster"`
	Gateway  gatewayValue `json:"gateway"`
	Token    string       `json:"token"`
	Proxy    string       `json:"proxy,omitempty"`
	Services []string     `json:"services,omitempty"`
}

type gatewayValue struct {
	URL string `json:"url"`
	CA  string `json:"ca,omitempty"`
}

// print prints the agents' manifest, or the values of their chart, with their first credential. account is the
// gateway's account in the cluster.
func (p *private) print(ctx context.Context, out io.Writer, r *registration.Registrar, name, account string) error {
	clusters, err := r.Clusters(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(clusters, func(c v1alpha1.Cluster) bool { return c.Name == name })
	if i < 0 {
		return fmt.Errorf("cluster %q was removed meanwhile", name)
	}
	issuer := &passes.Issuer{Objects: r.Objects, Secrets: r.Secrets, URL: p.to.URL}
	token, err := issuer.EnrolAgent(ctx, &clusters[i], p.lifetime)
	if err != nil {
		return err
	}
	if p.format == formatValues {
		values, err := yaml.Marshal(agentValues{
			Cluster: name, Gateway: gatewayValue{p.to.URL, string(p.to.CA)}, Token: string(token.Reveal()), Proxy: p.proxy,
			Services: p.services,
		})
		if err == nil {
			_, err = out.Write(values)
		}
		return err
	}
	joined := sha256.Sum256(token.Reveal())
	return agentManifest.Execute(out, map[string]any{
		"Namespace": joinNamespace, "Name": account + "-agent", "Cluster": name, "Gateway": p.to.URL, "CA": p.to.CA,
		"Token": token.Reveal(), "Image": p.image,
		"Proxy": []byte(p.proxy), "Services": strings.Join(p.services, ","), "Joined": hex.EncodeToString(joined[:8]),
	})
}
