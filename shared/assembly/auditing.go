package assembly

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/audit/loggroup"
	"github.com/clusterpass/clusterpass/shared/audit/override"
	"github.com/clusterpass/clusterpass/shared/audit/webhook"
	"github.com/clusterpass/clusterpass/shared/awsclient"
	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
)

// Auditing is the configuration of the audit log. Shared embeds it.
type Auditing struct {
	Audit            string       `envconfig:"CLUSTERPASS_AUDIT" desc:"File for audit events: an absolute path, or - for standard output. Files are rotated at 100 MB." example:"/var/log/clusterpass/audit.log"`
	AuditFiles       int          `envconfig:"CLUSTERPASS_AUDIT_FILES" default:"10" min:"2" desc:"Maximum number of audit files, including the current one. The oldest is deleted." example:"50"`
	AuditWebhook     AuditWebhook `envconfig:"CLUSTERPASS_AUDIT_WEBHOOK" desc:"Kubeconfig of a webhook that receives audit events, as in kube-apiserver's --audit-webhook-config-file: the absolute path of a file, or secret:NAME for a secret in the store." example:"secret:audit/webhook"`
	AuditLogGroup    LogGroup     `envconfig:"CLUSTERPASS_AUDIT_LOG_GROUP" desc:"Log group of Amazon CloudWatch Logs that receives and acknowledges audit events. The AWS SDK reads its standard environment." example:"/clusterpass/audit"`
	AuditLogStream   StreamPrefix `envconfig:"CLUSTERPASS_AUDIT_LOG_STREAM_PREFIX" default:"gateway" desc:"First part of the names of the log streams, one for each hour." example:"proxy"`
	AuditSpool       int          `envconfig:"CLUSTERPASS_AUDIT_SPOOL" default:"4096" min:"1" desc:"Maximum number of audit events that wait in memory for the file, and the same for the webhook and the log group. Each queue has at most 32 MiB." example:"20000"`
	AuditFailClosed  bool         `envconfig:"CLUSTERPASS_AUDIT_FAIL_CLOSED" default:"false" desc:"Refuse requests while the queue of audit events is full. Otherwise events are dropped and counted." example:"true"`
	UnidentifiedRate int          `envconfig:"CLUSTERPASS_AUDIT_UNIDENTIFIED_RATE" default:"1" min:"1" desc:"Maximum number of audit events per second of unauthenticated callers, and of their lines in the log. 60 times as many may be written at once. Further ones are dropped, and counted in one event or line every 10 s." example:"10"`
}

// AuditWebhook names the kubeconfig of an audit webhook; "" for none.
type AuditWebhook string

// LogGroup is the name of a log group for audit events; "" for none.
type LogGroup string

// Decode implements envconfig.Decoder.
func (g *LogGroup) Decode(v string) error {
	if v != "" && !loggroup.ValidGroup(v) {
		return errors.New("want the name of a log group: letters, digits and -._/#")
	}
	*g = LogGroup(v)
	return nil
}

func (g LogGroup) open(ctx context.Context, prefix StreamPrefix) (audit.Sink, error) {
	cfg, err := awsclient.Load(ctx)
	if err == nil && cfg.Region == "" {
		err = errors.New("no AWS region; set AWS_REGION")
	}
	if err != nil {
		return nil, &config.Error{
			Variable: "CLUSTERPASS_AUDIT_LOG_GROUP", Problem: "the log group cannot be used: " + err.Error(),
			Example: "/clusterpass/audit",
		}
	}
	return loggroup.New(loggroup.Config{AWS: cfg, Group: string(g), StreamPrefix: string(prefix)}), nil
}

// StreamPrefix is the first part of the name of a log stream.
type StreamPrefix string

// Decode implements envconfig.Decoder.
func (p *StreamPrefix) Decode(v string) error {
	if !loggroup.ValidPrefix(v) {
		return errors.New("want letters, digits and -._/#")
	}
	*p = StreamPrefix(v)
	return nil
}

// defaultSpool and defaultStream are those of an Auditing that was not read from the environment.
const (
	defaultSpool  = 4096
	defaultStream = StreamPrefix("gateway")
)

const secretPrefix = "secret:"

// Decode implements envconfig.Decoder.
func (a *AuditWebhook) Decode(v string) error {
	name, isSecret := strings.CutPrefix(v, secretPrefix)
	if v != "" && (!isSecret && !filepath.IsAbs(v) || isSecret && secrets.ValidName(name) != nil) {
		return errors.New("want an absolute path, or secret: and a name")
	}
	*a = AuditWebhook(v)
	return nil
}

func (a AuditWebhook) open(ctx context.Context, st *stores.Stores) (audit.Sink, error) {
	text, err := a.kubeconfig(ctx, st)
	var parsed *kubeconfig.Config
	if err == nil {
		parsed, err = kubeconfig.Parse(text, kubeconfig.Options{})
	}
	if err == nil && parsed.Credential.EKS != nil {
		err = errors.New("a webhook has no user of EKS; use a token, a client certificate or basic authentication")
	}
	if err != nil {
		return nil, &config.Error{
			Variable: "CLUSTERPASS_AUDIT_WEBHOOK", Problem: "the kubeconfig cannot be used: " + err.Error(),
			Example: "/etc/clusterpass/audit-webhook.yaml",
		}
	}
	return webhook.New(webhook.Config{
		URL: parsed.Server, TLS: parsed.TLS, ProxyURL: parsed.ProxyURL, Token: parsed.Credential.Token,
		Username: parsed.Credential.Username, Password: parsed.Credential.Password,
	}), nil
}

func (a AuditWebhook) kubeconfig(ctx context.Context, st *stores.Stores) ([]byte, error) {
	name, isSecret := strings.CutPrefix(string(a), secretPrefix)
	if !isSecret {
		return os.ReadFile(string(a))
	}
	secret, err := st.Secrets.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return secret.Value.Reveal(), nil
}

// open returns the audit log, or nil if none is configured. queue is the number of events that may wait.
func (a *Auditing) open(ctx context.Context, st *stores.Stores, log *slog.Logger, queue int) (*audit.Log, error) {
	cfg := audit.Config{
		Queue: queue, FailClosed: a.AuditFailClosed, UnidentifiedRate: a.UnidentifiedRate, Log: log,
		Override: func(ctx context.Context) (bool, error) { return override.InForce(ctx, st.Objects, time.Now()) },
	}
	if a.AuditWebhook != "" {
		sink, err := a.AuditWebhook.open(ctx, st)
		if err != nil {
			return nil, err
		}
		cfg.Sinks = append(cfg.Sinks, sink)
	}
	if a.AuditLogGroup != "" {
		sink, err := a.AuditLogGroup.open(ctx, cmp.Or(a.AuditLogStream, defaultStream))
		if err != nil {
			return nil, err
		}
		cfg.Sinks = append(cfg.Sinks, sink)
	}
	if a.Audit != "" {
		file, err := a.openFile()
		if err != nil {
			return nil, err
		}
		cfg.To = file
	}
	if cfg.To != nil || len(cfg.Sinks) > 0 {
		return audit.New(cfg), nil
	}
	if a.AuditFailClosed {
		return nil, &config.Error{
			Variable: "CLUSTERPASS_AUDIT_FAIL_CLOSED", Example: "false",
			Problem: "needs CLUSTERPASS_AUDIT, CLUSTERPASS_AUDIT_WEBHOOK or CLUSTERPASS_AUDIT_LOG_GROUP",
		}
	}
	return nil, nil
}

func (a *Auditing) openFile() (io.Writer, error) {
	if a.Audit == "-" {
		return noClose{os.Stdout}, nil
	}
	return audit.File{Path: a.Audit, MaxBackups: max(a.AuditFiles-1, 0)}.Open()
}

// noClose hides the Close of standard output.
type noClose struct{ io.Writer }
