package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	loginapi "github.com/clusterpass/clusterpass/shared/api/clusterpass/login"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
)

type loginRequest struct {
	kubeconfig, prefix, ca, pass, cert, key      string
	oidcIssuer, oidcClient, eks, region, profile string
	oidcScopes, oidcArgs, clusters               []string
	skipCheck                                    bool
}

func login() *cobra.Command {
	req := &loginRequest{}
	cmd := &cobra.Command{
		Use: "login URL", Short: "Write contexts for a gateway and its clusters into your kubeconfig",
		Args: cobra.MaximumNArgs(1),
		Long: `Write contexts into your kubeconfig: one for each cluster that you may reach, "fleet" for all of them,
"fleet@" for all of them with names as NAME@CLUSTER, and "clusterpass" for the gateway itself. Identify yourself with
one of:

  --pass FILE                         a pass from kubectl create or clusterpass pass create; - for standard input
  --oidc-issuer URL --oidc-client ID  OpenID Connect: kubectl runs kubelogin (kubectl krew install oidc-login)
  --eks-name NAME                     your AWS identity: kubectl runs aws eks get-token --cluster-name NAME
  --client-certificate, --client-key  a client certificate

Without any of them, login asks the gateway whether it accepts OpenID Connect or AWS.

The gateway then lists your clusters, which also checks the credential. Contexts that login wrote earlier for
this gateway are replaced, but keep the namespaces that you set. Contexts of other servers are never changed.`,
		Example: `  clusterpass login --pass ann.kubeconfig
  clusterpass login https://clusterpass.example.com
  clusterpass login https://clusterpass.example.com --oidc-issuer https://login.example.com --oidc-client clusterpass
  clusterpass login https://clusterpass.example.com --eks-name clusterpass --prefix work-`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var at string
			if len(args) == 1 {
				at = args[0]
			}
			u, err := req.user(cmd.Context(), at, cmd.InOrStdin())
			if err != nil {
				return err
			}
			clusters := req.clusters
			if !req.skipCheck {
				found, _, err := u.reachable(cmd.Context())
				if err != nil {
					return u.trouble(err, "")
				}
				clusters = append(clusters, found...)
			}
			return req.write(cmd.OutOrStdout(), u, clusters)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.kubeconfig, "kubeconfig", "", "kubeconfig file to write into (default: kubectl's)")
	f.StringVar(&req.prefix, "prefix", "", "prefix of the names of the contexts")
	f.StringVar(&req.ca, "ca", "", "file with the CA of the gateway's certificate, if this machine does not trust it")
	f.StringVar(&req.pass, "pass", "", "file with a pass, or - for standard input")
	f.StringVar(&req.cert, "client-certificate", "", "file with a client certificate, PEM")
	f.StringVar(&req.key, "client-key", "", "file with its key, PEM")
	f.StringVar(&req.oidcIssuer, "oidc-issuer", "",
		"URL of the OpenID Connect provider; ask the gateway's administrator")
	f.StringVar(&req.oidcClient, "oidc-client", "", "client ID there")
	f.StringSliceVar(&req.oidcScopes, "oidc-scope", nil, "further scope to request; may be repeated")
	f.StringArrayVar(&req.oidcArgs, "oidc-arg", nil,
		"further argument for kubelogin, such as --grant-type=device-code where there is no browser; may be repeated")
	f.StringVar(&req.eks, "eks-name", "",
		"the gateway's name for AWS identities (awsIAM.gatewayID); ask its administrator")
	f.StringVar(&req.region, "aws-region", "", "region for aws eks get-token (default: that of your AWS configuration)")
	f.StringVar(&req.profile, "aws-profile", "", "profile for aws eks get-token (default: that of your AWS configuration)")
	f.StringSliceVar(&req.clusters, "cluster", nil,
		"cluster to write a context for, instead of those that the gateway lists; may be repeated")
	f.BoolVar(&req.skipCheck, "skip-check", false, "do not call the gateway; name clusters with --cluster")
	return cmd
}

func (req *loginRequest) user(ctx context.Context, at string, in io.Reader) (*user, error) {
	ways := 0
	for _, way := range []string{req.pass, req.oidcIssuer, req.eks, req.cert} {
		if way != "" {
			ways++
		}
	}
	if ways > 1 || ways == 0 && req.skipCheck {
		return nil, errors.New(choose)
	}
	if (req.cert == "") != (req.key == "") {
		return nil, errors.New("--client-certificate and --client-key must be used together")
	}
	if req.pass != "" {
		return req.fromPass(at, in)
	}
	if at == "" {
		return nil,
			errors.New(
				"the gateway is missing: name its URL, such as clusterpass login https://clusterpass.example.com, or a pass " +
					"with --pass FILE")
	}
	base, err := gatewayOf(at)
	if err != nil || base != strings.TrimSuffix(at, "/") {
		return nil, fmt.Errorf("%q is no gateway's URL: want one without a path, such as https://clusterpass.example.com", at)
	}
	u := &user{url: base, cluster: clientcmdapi.NewCluster(), auth: clientcmdapi.NewAuthInfo()}
	if req.ca != "" {
		if u.cluster.CertificateAuthorityData, err = os.ReadFile(req.ca); err != nil {
			return nil, err
		}
	}
	if ways == 0 {
		if err := req.discover(ctx, u); err != nil {
			return nil, err
		}
	}
	switch {
	case req.cert != "":
		if u.auth.ClientCertificateData, err = os.ReadFile(req.cert); err == nil {
			u.auth.ClientKeyData, err = os.ReadFile(req.key)
		}
	case req.eks != "":
		u.auth.Exec = req.eksToken()
	case req.oidcClient == "":
		err = errors.New("--oidc-issuer needs --oidc-client")
	default:
		u.auth.Exec = req.kubelogin()
	}
	return u, err
}

const choose = "choose a credential with one of --pass, --oidc-issuer, --eks-name and " +
	"--client-certificate"

// trouble explains a failed call. otherwise ends the message unless the gateway's certificate is the reason.
func (u *user) trouble(err error, otherwise string) error {
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown) && len(u.cluster.CertificateAuthorityData) > 0:
		return fmt.Errorf(
			"the certificate of the gateway at %s is not signed by the CA that you gave: get the right one from the gateway's "+
				"administrator", u.url)
	case errors.As(err, &unknown):
		return fmt.Errorf(
			"this machine does not trust the certificate of the gateway at %s: get its CA from the gateway's administrator, "+
				"and name the file with --ca", u.url)
	}
	return fmt.Errorf("the gateway at %s: %s%s", u.url, plain(err), otherwise)
}

func (req *loginRequest) discover(ctx context.Context, u *user) error {
	cfg, err := u.config()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	data, err := client.RESTClient().Get().AbsPath(loginapi.Path).DoRaw(ctx)
	if err != nil {
		return u.trouble(err, "; it does not list the credentials that it accepts: "+choose)
	}
	var methods loginapi.Methods
	if err := json.Unmarshal(data, &methods); err != nil {
		return fmt.Errorf("the server at %s is not a gateway: %w", u.url, err)
	}
	aws := methods.AWSIAM != nil
	switch {
	case len(methods.OIDC) == 1 && len(methods.OIDC[0].Audiences) > 0 && !aws:
		req.oidcIssuer = methods.OIDC[0].URL
		if req.oidcClient == "" {
			req.oidcClient = methods.OIDC[0].Audiences[0]
		}
	case len(methods.OIDC) == 0 && aws:
		req.eks = methods.AWSIAM.GatewayID
	case len(methods.OIDC) == 0:
		return fmt.Errorf(
			"the gateway at %s accepts only passes and client certificates: get one, and name it with --pass or "+
				"--client-certificate", u.url)
	default:
		var ways []string
		for _, o := range methods.OIDC {
			ways = append(ways, fmt.Sprintf("--oidc-issuer %s --oidc-client %s", o.URL, strings.Join(o.Audiences, "|")))
		}
		if aws {
			ways = append(ways, "--eks-name "+methods.AWSIAM.GatewayID)
		}
		return fmt.Errorf("the gateway at %s accepts several credentials; choose one: %s", u.url, strings.Join(ways, ", "))
	}
	return nil
}

func (req *loginRequest) fromPass(at string, in io.Reader) (*user, error) {
	read := func() ([]byte, error) { return os.ReadFile(req.pass) }
	if req.pass == "-" {
		read = func() ([]byte, error) { return io.ReadAll(io.LimitReader(in, 1<<20)) }
	}
	data, err := read()
	if err != nil {
		return nil, err
	}
	kc, err := clientcmd.Load(data)
	if err != nil || kc.Contexts[kubeconfig.Own] == nil {
		return nil, fmt.Errorf("--pass %s contains no pass: want the kubeconfig that was printed when the pass was "+
			"created", req.pass)
	}
	if err := inline(kc); err != nil {
		return nil, fmt.Errorf("--pass %s is no pass: %w", req.pass, err)
	}
	u, err := userOf(kc, kubeconfig.Own)
	if err == nil && at != "" && strings.TrimSuffix(at, "/") != u.url {
		err = fmt.Errorf("the pass is for %s", u.url)
	}
	return u, err
}

// inline refuses programs to run and references to files. Otherwise the file's author could run programs and read
// files.
func inline(kc *clientcmdapi.Config) error {
	c := kc.Contexts[kubeconfig.Own]
	auth, cluster := kc.AuthInfos[c.AuthInfo], kc.Clusters[c.Cluster]
	if auth == nil || cluster == nil {
		return nil // userOf reports the error
	}
	for _, not := range []struct {
		field string
		there bool
	}{
		{"exec", auth.Exec != nil}, {"auth-provider", auth.AuthProvider != nil}, {"tokenFile", auth.TokenFile != ""},
		{"client-certificate", auth.ClientCertificate != ""}, {"client-key", auth.ClientKey != ""},
		{"certificate-authority", cluster.CertificateAuthority != ""},
	} {
		if not.there {
			return fmt.Errorf(
				"it has %s, but a pass runs no program and names no file; want the kubeconfig that was printed when the pass "+
					"was created", not.field)
		}
	}
	if auth.Token == "" && len(auth.ClientCertificateData) == 0 {
		return errors.New("it has neither token nor client-certificate-data")
	}
	kc.AuthInfos[c.AuthInfo] = &clientcmdapi.AuthInfo{
		Token: auth.Token, ClientCertificateData: auth.ClientCertificateData, ClientKeyData: auth.ClientKeyData,
	}
	return nil
}

const execVersion = "client.authentication.k8s.io/v1"

func (req *loginRequest) kubelogin() *clientcmdapi.ExecConfig {
	args := []string{
		"oidc-login", "get-token", "--oidc-issuer-url=" + req.oidcIssuer, "--oidc-client-id=" + req.oidcClient,
	}
	for _, s := range req.oidcScopes {
		args = append(args, "--oidc-extra-scope="+s)
	}
	args = append(args, req.oidcArgs...)
	return &clientcmdapi.ExecConfig{
		APIVersion: execVersion, Command: "kubectl", Args: args, InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode,
		InstallHint: "kubelogin is missing: kubectl krew install oidc-login, or see https://github.com/int128/kubelogin",
	}
}

func (req *loginRequest) eksToken() *clientcmdapi.ExecConfig {
	args := []string{"eks", "get-token", "--cluster-name", req.eks, "--output", "json"}
	if req.region != "" {
		args = append([]string{"--region", req.region}, args...)
	}
	e := &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1beta1", // the version of the AWS CLI's output
		Command:    "aws", Args: args, InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode,
		InstallHint: "the AWS CLI is missing: see https://docs.aws.amazon.com/cli/",
	}
	if req.profile != "" {
		e.Env = []clientcmdapi.ExecEnvVar{{Name: "AWS_PROFILE", Value: req.profile}}
	}
	return e
}

func (req *loginRequest) write(out io.Writer, u *user, clusters []string) error {
	files := clientcmd.NewDefaultPathOptions()
	usual := files.GetDefaultFilename()
	files.LoadingRules.ExplicitPath, files.LoadingRules.WarnIfAllMissing = req.kubeconfig, false
	path := files.GetDefaultFilename()
	all, err := files.GetStartingConfig()
	if err != nil {
		return err
	}
	kc, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		kc, err = clientcmdapi.NewConfig(), nil
	}
	if err != nil {
		return err
	}
	made := u.contexts(req.prefix, clusters)
	if err := merge(kc, all, made, u.url, req.prefix); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := clientcmd.WriteToFile(*kc, path); err != nil {
		return err
	}
	next := "kubectl --context " + made.CurrentContext
	if !sameFile(path, usual) {
		next = "kubectl --kubeconfig " + path + " --context " + made.CurrentContext
	}
	_, err = fmt.Fprintf(out, "%s has %d contexts for %s now. Next:\n\n  %s get %s\n", path, len(made.Contexts), u.url,
		next,
		map[bool]string{true: "nodes", false: "clusters"}[len(clusters) > 0])
	return err
}

func sameFile(a, b string) bool {
	absolute, err := filepath.Abs(a)
	other, err2 := filepath.Abs(b)
	return err == nil && err2 == nil && absolute == other
}

// merge replaces kc's contexts of the gateway at url by made. It fails if it would change or hide other entries of all,
// which is everything that kubectl reads.
func merge(kc, all, made *clientcmdapi.Config, url, prefix string) error {
	if err := checkConflicts(all, made, url); err != nil {
		return err
	}
	maps.Copy(kc.AuthInfos, made.AuthInfos)
	removeUnreachable(kc, all, made, url, prefix)
	for name, c := range made.Contexts {
		if before := all.Contexts[name]; before != nil {
			c.Namespace = before.Namespace
		}
		kc.Contexts[name], kc.Clusters[c.Cluster] = c, made.Clusters[c.Cluster]
	}
	if current := all.CurrentContext; all.Contexts[current] == nil && made.Contexts[current] == nil {
		kc.CurrentContext = made.CurrentContext
	}
	return nil
}

// checkConflicts returns an error if all has an entry with the name of one in made, but for another server than url.
func checkConflicts(all, made *clientcmdapi.Config, url string) error {
	ours := func(server string) bool { return server == url || strings.HasPrefix(server, url+"/") }
	for name := range made.Contexts {
		if c := all.Contexts[name]; c != nil && (all.Clusters[c.Cluster] == nil || !ours(all.Clusters[c.Cluster].Server)) {
			return fmt.Errorf("the context %q exists for another server; choose other names with --prefix", name)
		}
		if c := all.Clusters[name]; c != nil && !ours(c.Server) {
			return fmt.Errorf("the cluster %q exists for another server; choose other names with --prefix", name)
		}
	}
	for name := range made.AuthInfos {
		for of, c := range all.Contexts {
			if c.AuthInfo == name && (all.Clusters[c.Cluster] == nil || !ours(all.Clusters[c.Cluster].Server)) {
				return fmt.Errorf("the user %q exists for the context %q; choose another name with --prefix", name, of)
			}
		}
	}
	return nil
}

// removeUnreachable removes contexts of an earlier login that are not in made. It keeps those that the user created.
func removeUnreachable(kc, all, made *clientcmdapi.Config, url, prefix string) {
	for name, c := range kc.Contexts {
		server := url + kubeconfig.Path(strings.TrimPrefix(name, prefix))
		if made.Contexts[name] != nil || made.AuthInfos[c.AuthInfo] == nil || c.Cluster != name || kc.Clusters[name] == nil ||
			kc.Clusters[name].Server != server {
			continue
		}
		delete(kc.Contexts, name)
		delete(all.Contexts, name)
		if !slices.ContainsFunc(slices.Collect(maps.Values(all.Contexts)), func(c *clientcmdapi.Context) bool {
			return c.Cluster == name
		}) {
			delete(kc.Clusters, name)
		}
	}
}
