package registration

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/shared/secrets"
)

// Context is one context of a user's kubeconfig. Its Kubeconfig contains the data of all files.
type Context struct {
	Name       string // as in the kubeconfig
	Namespace  string // "" for the default one
	Current    bool   // whether it is the kubeconfig's current context
	Kubeconfig secrets.Value
	Err        error // why Kubeconfig is empty, e.g. a missing file
}

// Contexts returns the contexts of kubeconfig files, sorted by name. path is as KUBECONFIG; "" is kubectl's default.
func Contexts(path string) ([]Context, error) {
	all, err := read(path)
	if err != nil {
		return nil, err
	}
	var out []Context
	for _, name := range slices.Sorted(maps.Keys(all.Contexts)) {
		data, err := flatten(all, name)
		out = append(out, Context{
			Name: name, Namespace: all.Contexts[name].Namespace, Current: name == all.CurrentContext, Kubeconfig: data, Err: err,
		})
	}
	return out, nil
}

// Load returns one context of the files in path. context "" is the current one, and path "-" is standard input.
func Load(path, context string) (secrets.Value, error) {
	all, err := read(path)
	if err != nil {
		return secrets.Value{}, err
	}
	if context == "" {
		context = all.CurrentContext
	}
	if len(all.Contexts) == 0 {
		return secrets.Value{}, errors.New("there is no kubeconfig with a context; name one with --kubeconfig")
	}
	if _, ok := all.Contexts[context]; !ok {
		return secrets.Value{},
			fmt.Errorf("no such context: %q; there are: %s", context, strings.Join(slices.Sorted(maps.Keys(all.Contexts)), ", "))
	}
	return flatten(all, context)
}

// the parser's own error may quote a credential
var errNoKubeconfig = errors.New("not the YAML or JSON of a kubeconfig")

func read(path string) (*clientcmdapi.Config, error) {
	if path == "-" {
		data, err := io.ReadAll(os.Stdin)
		if err != nil {
			return nil, err
		}
		all, err := clientcmd.Load(data)
		if err != nil {
			return nil, errNoKubeconfig
		}
		return all, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if path != "" {
		rules.Precedence = strings.Split(path, string(os.PathListSeparator))
		var missing error
		for _, p := range rules.Precedence {
			_, err := os.Stat(p)
			if err == nil {
				missing = nil
				break
			}
			missing = err // like kubectl, which needs only one of the files
		}
		if missing != nil {
			return nil, missing
		}
	}
	all, err := rules.Load()
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return nil, errNoKubeconfig
	}
	return all, err
}

func flatten(all *clientcmdapi.Config, context string) (secrets.Value, error) {
	kc := all.DeepCopy()
	kc.CurrentContext = context
	if err := clientcmdapi.MinifyConfig(kc); err != nil {
		return secrets.Value{}, fmt.Errorf("context %q: %w", context, err)
	}
	if err := clientcmdapi.FlattenConfig(kc); err != nil {
		return secrets.Value{}, fmt.Errorf("context %q: %w", context, err)
	}
	for _, user := range kc.AuthInfos { // FlattenConfig ignores token files
		if user.TokenFile == "" {
			continue
		}
		token, err := os.ReadFile(user.TokenFile)
		if err != nil {
			return secrets.Value{}, fmt.Errorf("context %q: %w", context, err)
		}
		user.Token, user.TokenFile = strings.TrimSpace(string(token)), ""
	}
	return writeKubeconfig(kc)
}

// WithToken replaces the credential of a flat kubeconfig with one context by a bearer token.
func WithToken(kubeconfig secrets.Value, token string) (secrets.Value, error) {
	return withCredential(kubeconfig, clientcmdapi.AuthInfo{Token: token})
}

// WithoutCredential removes the credential from a flat kubeconfig with one context, for identity passthrough.
func WithoutCredential(kubeconfig secrets.Value) (secrets.Value, error) {
	return withCredential(kubeconfig, clientcmdapi.AuthInfo{})
}

func withCredential(kubeconfig secrets.Value, credential clientcmdapi.AuthInfo) (secrets.Value, error) {
	kc, err := clientcmd.Load(kubeconfig.Reveal())
	if err != nil {
		// the parser's own error may quote a credential
		return secrets.Value{}, errors.New("not the YAML or JSON of a kubeconfig")
	}
	ctx, ok := kc.Contexts[kc.CurrentContext]
	if !ok {
		return secrets.Value{}, fmt.Errorf("no such context: %q", kc.CurrentContext)
	}
	ctx.AuthInfo = "clusterpass"
	kc.AuthInfos = map[string]*clientcmdapi.AuthInfo{ctx.AuthInfo: &credential}
	return writeKubeconfig(kc)
}

func writeKubeconfig(kc *clientcmdapi.Config) (secrets.Value, error) {
	data, err := clientcmd.Write(*kc)
	return secrets.NewValue(data), err
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// ClusterName derives a cluster's name from a context's, or from the last part of an ARN.
func ClusterName(context string) string {
	if strings.HasPrefix(context, "arn:") {
		context = context[strings.LastIndexByte(context, '/')+1:]
	}
	name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(context), "-"), "-")
	return strings.TrimRight(name[:min(len(name), 63)], "-")
}
