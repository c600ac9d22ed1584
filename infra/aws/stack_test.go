package aws

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/functions/control"
	"github.com/clusterpass/clusterpass/functions/fleet"
	"github.com/clusterpass/clusterpass/functions/proxy"
	"github.com/clusterpass/clusterpass/functions/rotate"
	"github.com/clusterpass/clusterpass/infra/local/lambda"
	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/websocket-bridge/bridge"
)

var programs = map[string]func() any{
	"proxy":   func() any { return &proxy.Config{} },
	"control": func() any { return &control.Config{} },
	"fleet":   func() any { return &fleet.Config{} },
	"rotate":  func() any { return &rotate.Config{} },
	"bridge":  func() any { return &bridge.Config{} },
}

const image = "BridgeDigest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

var defaults = []string{
	"CLUSTERPASS_ALLOW_LOOPBACK", "CLUSTERPASS_BRIDGE_URL", "CLUSTERPASS_MAX_STREAMS_PER_CALLER",
	"CLUSTERPASS_STREAM_IDLE_TIMEOUT",
	"CLUSTERPASS_STREAM_TIMEOUT", "CLUSTERPASS_STALL_TIMEOUT", "CLUSTERPASS_PING_PERIOD", "CLUSTERPASS_MAX_MESSAGE_BYTES",
	"CLUSTERPASS_MAX_HEADER_BYTES", "CLUSTERPASS_RECHECK", "CLUSTERPASS_PROBE_INTERVAL", "CLUSTERPASS_MAX_CALLS",
	"CLUSTERPASS_MAX_CALLS_PER_CALLER", "CLUSTERPASS_MAX_CALLS_PER_CLUSTER", "CLUSTERPASS_MAX_UNVERIFIED",
	"CLUSTERPASS_AUDIT_FILES", "CLUSTERPASS_AUDIT_SPOOL", "CLUSTERPASS_AUDIT_UNIDENTIFIED_RATE",
	// only with RecordingDays, and only for a directory
	"CLUSTERPASS_RECORDINGS", "CLUSTERPASS_RECORDINGS_MAX_AGE", "CLUSTERPASS_RECORDINGS_MAX_BYTES",
	"CLUSTERPASS_MAX_UNKNOWN", "CLUSTERPASS_MAX_UNKNOWN_PER_SOURCE",
	"CLUSTERPASS_MAX_IDLE_CONNECTIONS", "CLUSTERPASS_MAX_IDLE_CONNECTIONS_PER_SOURCE",
	"CLUSTERPASS_SOURCE_ADDRESS",                                       // the bridge's default is correct behind the ALB
	"CLUSTERPASS_TLS_CERT", "CLUSTERPASS_TLS_KEY", "CLUSTERPASS_HOSTS", // the ALB has the certificate
}

func configure(t *testing.T, name string, env map[string]string) any {
	t.Helper()
	cfg := programs[name]()
	known := config.Variables(cfg)
	for _, v := range known {
		t.Setenv(v, "")
		if err := os.Unsetenv(v); err != nil {
			t.Fatal(err)
		}
	}
	ofRuntime := lambda.RuntimeVariables(name)
	for k, v := range env {
		if !slices.Contains(known, k) && (v == "" || v != ofRuntime[k]) {
			t.Errorf("%s does not read its variable %s=%s", name, k, v)
		}
		t.Setenv(k, v)
	}
	for k := range ofRuntime {
		if env[k] == "" {
			t.Errorf("the template of %s has no %s", name, k)
		}
	}
	if err := config.Load(cfg); err != nil {
		t.Errorf("%s cannot parse its environment: %v", name, err)
	}
	return cfg
}

func clientCA(t *testing.T) string {
	t.Helper()
	ca, err := pki.LoadCA(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(ca.PEM())
}

type balancedStack struct {
	account
	outputs map[string]string
	bridge  *bridge.Config
	rotate  *rotate.Config
	fleet   *fleet.Config
	proxy   *proxy.Config
	control *control.Config
}

// Each program must be able to parse its configuration, and get each parameter of the template.
func TestStackWithBalancer(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	a := newAccount(t)
	s := &balancedStack{account: a, outputs: a.deploy(
		image, "DomainName=clusterpass.example.com", "CertificateArn="+a.certificate(), "ClientCA="+clientCA(t),
		"MutualTLS=passthrough",
		`Authentication={"awsIAM": {"gatewayID": "clusterpass", "accounts": ["111122223333"]}}`,
		"WebsocketOrigins=https://a.example.com,https://b.example.com",
		"ControlPlane=management", "TokenLifetime=72h", "LogLevel=WARN",
		"ServerCA="+clientCA(t), "MaxPassTTL=12h", "AuditWebhook=secret:audit/webhook", "AuditFailClosed=true",
		"PassKMSKey=arn:aws:kms:"+region+":111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
	)}
	if s.outputs["Url"] != "https://clusterpass.example.com" || s.outputs["BridgeUrl"] != s.outputs["Url"] ||
		!strings.Contains(s.outputs["NextCommand"], "cluster join") {
		t.Errorf("outputs %v", s.outputs)
	}
	for _, name := range []string{"ProxyRole", "FleetRole", "ControlRole", "BridgeRole"} {
		if !strings.HasPrefix(s.outputs[name], "arn:aws:iam::") {
			t.Errorf("the output %s for access entries of EKS is %q", name, s.outputs[name])
		}
	}
	s.checkVariables()
	environment := func(name string) map[string]string {
		return a.function("clusterpass-" + name).Environment.Variables
	}
	s.bridge = configure(t, "bridge", a.bridgeEnvironment()).(*bridge.Config)
	s.rotate = configure(t, "rotate", environment("rotate")).(*rotate.Config)
	s.fleet = configure(t, "fleet", environment("fleet")).(*fleet.Config)
	s.proxy = configure(t, "proxy", environment("proxy")).(*proxy.Config)
	s.control = configure(t, "control", environment("control")).(*control.Config)
	s.checkBridge()
	s.checkTunnel()
	if r := s.rotate; r.Store != s.bridge.Store || r.TokenLifetime.Hours() != 72 || r.URL != s.bridge.URL || r.URL == "" {
		t.Errorf("rotate has %+v", r)
	}
	s.checkPasses()
	for name, cfg := range map[string]proxy.Config{
		"proxy": *s.proxy, "control": s.control.Config.Config, "fleet": s.fleet.Config,
	} {
		s.checkFunction(name, cfg)
	}
	s.checkRouting()
	s.checkStores()
}

func (s *balancedStack) checkVariables() {
	s.t.Helper()
	for name := range programs {
		env := s.bridgeEnvironment()
		if name != "bridge" {
			env = s.function("clusterpass-" + name).Environment.Variables
		}
		for _, v := range config.Variables(programs[name]()) {
			if _, ok := env[v]; !ok && !slices.Contains(defaults, v) {
				s.t.Errorf("%s reads %s, which the template does not set", name, v)
			}
		}
	}
}

func (s *balancedStack) checkBridge() {
	s.t.Helper()
	b := s.bridge
	if b.Store.String() != s.outputs["Store"] || string(b.URL) != s.outputs["Url"] || b.Listen != ":8080" ||
		!b.SelfSigned || b.CloudWatch != "Clusterpass/clusterpass" ||
		len(b.Origins) != 2 || b.ControlPlane != "management" || b.Audit != "-" || b.LogLevel.String() != "WARN" {
		s.t.Errorf("the bridge has %+v", b)
	}
}

func (s *balancedStack) checkTunnel() {
	s.t.Helper()
	b := s.bridge
	tunnel, err := url.Parse(s.outputs["TunnelUrl"])
	if err != nil || tunnel.Scheme != "https" || len(b.Peers) != 1 || b.Peers[0] != tunnel.Host ||
		b.TunnelListen != ":"+tunnel.Port() || b.MaxAgents != 1000 {
		s.t.Fatalf("the tunnel port is %q; bridges listen on %s, have the peers %s and accept %d agents",
			s.outputs["TunnelUrl"], b.TunnelListen, b.Peers, b.MaxAgents)
	}
	var zones struct{ Namespaces []struct{ ID, Name string } }
	var names struct {
		Services []struct{ Name, NamespaceID string }
	}
	s.json(&zones, "servicediscovery", http.MethodPost, "/", "Route53AutoNaming_v20170314.ListNamespaces", "{}")
	s.json(&names, "servicediscovery", http.MethodPost, "/", "Route53AutoNaming_v20170314.ListServices", "{}")
	if len(zones.Namespaces) != 1 || len(names.Services) != 1 ||
		names.Services[0].Name+"."+zones.Namespaces[0].Name != tunnel.Hostname() {
		s.t.Errorf("the names are %v in %v", names, zones)
	}
}

func (s *balancedStack) checkPasses() {
	s.t.Helper()
	b, c := s.bridge, s.control
	if len(c.ServerCA.PEM()) == 0 || string(c.ServerCA.PEM()) != string(b.ServerCA.PEM()) || c.MaxPassTTL.Hours() != 12 ||
		b.MaxPassTTL != c.MaxPassTTL || !strings.Contains(c.PassKMSKey, "1234abcd") || b.PassKMSKey != c.PassKMSKey {
		s.t.Errorf("passes are created with %+v and %+v", c.Options, b.Options)
	}
}

func (s *balancedStack) checkFunction(name string, cfg proxy.Config) {
	s.t.Helper()
	b := s.bridge
	want := b.Auditing
	want.AuditLogStream = assembly.StreamPrefix(name)
	if b.AuditLogStream != "bridge" || cfg.Auditing != want || !cfg.AuditFailClosed ||
		cfg.AuditWebhook != "secret:audit/webhook" || cfg.AuditLogGroup != "" {
		s.t.Errorf("%s has the audit settings %+v, the bridge %+v", name, cfg.Auditing, b.Auditing)
	}
	if cfg.CloudWatch != b.CloudWatch {
		s.t.Errorf("%s has the metrics' namespace %q", name, cfg.CloudWatch)
	}
	if s.control.ControlPlane != "management" || s.fleet.ControlPlane != "management" || cfg.Store != b.Store ||
		cfg.BridgeURL != "" ||
		cfg.MTLSHeader != b.MTLSHeader || cfg.MTLSHeader == identity.ALBHeader || len(cfg.MTLSHeader) > 40 {
		s.t.Errorf("%s has %+v", name, cfg)
	}
	group := s.elb("TargetGroupArn", "Action", "DescribeTargetGroups", "Names.member.1", "clusterpass-"+name)
	if len(group) != 1 || !cfg.MTLSTargetGroup.Is(group[0]) {
		s.t.Errorf("%s trusts events of %s, its target group is %s", name, cfg.MTLSTargetGroup, group)
	}
	if fn := s.function("clusterpass-" + name); len(fn.VpcConfig.SubnetIDs) != 2 {
		s.t.Errorf("%s is in %v", name, fn.VpcConfig)
	}
}

func (s *balancedStack) checkRouting() {
	s.t.Helper()
	balancer := s.elb("LoadBalancerArn", "Action", "DescribeLoadBalancers")
	listener := s.elb("ListenerArn", "Action", "DescribeListeners", "LoadBalancerArn", balancer[0])
	rules := s.elb("Priority", "Action", "DescribeRules", "ListenerArn", listener[0])
	if len(balancer) != 1 || len(listener) != 1 || len(rules) != len(route.Table) {
		s.t.Errorf("%d balancers, %d listeners, %d rules for %d rows", len(balancer), len(listener), len(rules),
			len(route.Table))
	}
}

func (s *balancedStack) checkStores() {
	t := s.t
	t.Helper()
	st, err := stores.Open(t.Context(), s.bridge.Store)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Objects.Create(t.Context(), "clusters/a", []byte("{}")); err != nil {
		t.Error(err)
	}
	if _, err := st.Secrets.Create(t.Context(), "clusters/a", secrets.NewValue([]byte("v")), nil); err != nil {
		t.Error(err)
	}
	var secret struct{ KmsKeyID string }
	s.json(&secret, "secretsmanager", http.MethodPost, "/", "secretsmanager.DescribeSecret",
		`{"SecretId": "clusterpass/clusters/a"}`)
	if secret.KmsKeyID != "alias/clusterpass" {
		t.Errorf("a secret is encrypted with %q", secret.KmsKeyID)
	}
}

// TestStackInPublicSubnets is the cheapest stack with a bridge.
func TestStackInPublicSubnets(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	a := newAccount(t)
	a.deploy(image, "DomainName=clusterpass.example.com", "CertificateArn="+a.certificate(), "ClientCA="+clientCA(t),
		"NatGateways=0", "BridgeMinTasks=1", "BridgeSpot=all", "ZoneA=eu-central-1b", "ZoneB=eu-central-1c")
	if fn := a.function("clusterpass-proxy"); len(fn.VpcConfig.SubnetIDs) != 0 {
		t.Errorf("the function is in %v", fn.VpcConfig)
	}
	p := configure(t, "proxy", a.function("clusterpass-proxy").Environment.Variables).(*proxy.Config)
	if p.MTLSTargetGroup != "" || configure(t, "bridge", a.bridgeEnvironment()).(*bridge.Config).MTLSHeader != "" {
		t.Error("client certificates are trusted, but the load balancer requests none")
	}
	if subnets := a.query("ec2", "2016-11-15", "subnetId", "Action", "DescribeSubnets", "Filter.1.Name", "cidr-block",
		"Filter.1.Value.1", "10.87.0.*"); len(subnets) != 2 {
		t.Errorf("subnets %v", subnets)
	}
	zones := a.query("ec2", "2016-11-15", "availabilityZone", "Action", "DescribeSubnets", "Filter.1.Name", "cidr-block",
		"Filter.1.Value.1", "10.87.0.*")
	if slices.Sort(zones); !slices.Equal(zones, []string{"eu-central-1b", "eu-central-1c"}) {
		t.Errorf("the subnets are in %v", zones)
	}
	if nats := a.query("ec2", "2016-11-15", "natGatewayId", "Action", "DescribeNatGateways"); len(nats) != 0 {
		t.Errorf("NAT gateways %v", nats)
	}
}

// TestStackWithAPI is the stack for emulators: functions, stores and an API, with an external bridge.
func TestStackWithAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	a := newAccount(t)
	parameters := []string{"FrontDoor=api", "BridgeUrl=https://bridge.example.com", "ClientCA=" + clientCA(t)}
	outputs := a.deploy(parameters...)
	if !strings.Contains(outputs["Url"], ".execute-api."+region+".") ||
		outputs["BridgeUrl"] != "https://bridge.example.com" {
		t.Errorf("outputs %v", outputs)
	}
	for _, name := range []string{"proxy", "control", "fleet"} {
		env := a.function("clusterpass-" + name).Environment.Variables
		configure(t, name, env)
		if env["CLUSTERPASS_BRIDGE_URL"] != "https://bridge.example.com" || env["CLUSTERPASS_MTLS_TARGET_GROUP"] != "" {
			t.Errorf("%s has %v", name, env)
		}
	}
	if balancers := a.elb("LoadBalancerArn", "Action", "DescribeLoadBalancers"); len(balancers) > 0 {
		t.Errorf("there are load balancers: %v", balancers)
	}
	var apis struct {
		Item []struct{ ID string }
	}
	a.json(&apis, "apigateway", http.MethodGet, "/restapis", "", "")
	if len(apis.Item) != 1 {
		t.Fatalf("%d APIs", len(apis.Item))
	}
	if !strings.Contains(string(a.call("apigateway", http.MethodGet, "/restapis/"+apis.Item[0].ID+"/resources", "", "")),
		"/clusters/{proxy+}") {
		t.Error("the API has no path for clusters")
	}
	a.deploy(append(parameters, "FunctionMemory=1024")...)
	if f := a.function("clusterpass-proxy"); f.MemorySize != 1024 {
		t.Errorf("deployed again with more memory, a function has %d MB", f.MemorySize)
	}
}

// TestStackWithAPIAndBridge has API Gateway for the functions, and a load balancer for streams, in an existing network.
func TestStackWithAPIAndBridge(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	a := newAccount(t)
	vpc := a.query("ec2", "2016-11-15", "vpcId", "Action", "DescribeVpcs")
	subnets := a.query("ec2", "2016-11-15", "subnetId", "Action", "DescribeSubnets")
	if len(vpc) == 0 || len(subnets) < 2 {
		t.Fatalf("a new account has networks %v with subnets %v", vpc, subnets)
	}
	outputs := a.deploy(image, "FrontDoor=api", "DomainName=clusterpass.example.com", "CertificateArn="+a.certificate(),
		"ClientCA="+clientCA(t),
		"VpcId="+vpc[0], "PublicSubnetIds="+subnets[0]+","+subnets[1], "PrivateSubnetIds="+subnets[0]+","+subnets[1])
	if !strings.Contains(outputs["Url"], ".execute-api."+region+".") ||
		outputs["BridgeUrl"] != "https://clusterpass.example.com" {
		t.Errorf("outputs %v", outputs)
	}
	for _, name := range []string{"proxy", "control", "fleet"} {
		fn := a.function("clusterpass-" + name)
		configure(t, name, fn.Environment.Variables)
		if got := fn.Environment.Variables["CLUSTERPASS_BRIDGE_URL"]; got != outputs["BridgeUrl"] ||
			len(fn.VpcConfig.SubnetIDs) != 2 {
			t.Errorf("%s sends streams to %q, and is in %v", name, got, fn.VpcConfig)
		}
	}
	if b := configure(t, "bridge", a.bridgeEnvironment()).(*bridge.Config); string(b.URL) != outputs["BridgeUrl"] {
		t.Errorf("the bridge is at %s", b.URL)
	}
	if now := a.query("ec2", "2016-11-15", "vpcId", "Action", "DescribeVpcs"); len(now) != len(vpc) {
		t.Errorf("networks %v, there were %v", now, vpc)
	}
}

// TestStackWithVerify has a load balancer that requires certificates, and bridges in two zones with a NAT gateway each.
func TestStackWithVerify(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	a := newAccount(t)
	a.deploy(image, "DomainName=clusterpass.example.com", "CertificateArn="+a.certificate(), "ClientCA="+clientCA(t),
		"NatGateways=2", "MutualTLS=verify",
		"TrustStoreArn=arn:aws:elasticloadbalancing:"+region+":111122223333:truststore/clients/0123456789abcdef")
	p := configure(t, "proxy", a.function("clusterpass-proxy").Environment.Variables).(*proxy.Config)
	b := configure(t, "bridge", a.bridgeEnvironment()).(*bridge.Config)
	if p.MTLSTargetGroup == "" || p.MTLSHeader == "" || p.MTLSHeader != b.MTLSHeader {
		t.Errorf("client certificates are trusted in the header %q of %q, and in %q",
			p.MTLSHeader, p.MTLSTargetGroup, b.MTLSHeader)
	}
	if nats := a.query("ec2", "2016-11-15", "natGatewayId", "Action", "DescribeNatGateways"); len(nats) != 2 {
		t.Errorf("NAT gateways %v", nats)
	}
}

// TestSamePrefixAgain fails if what a deleted stack leaves behind prevents another deployment with its Prefix, beyond
// the table. In moto, target groups and delivery streams outlive a stack, so this stack has none.
func TestSamePrefixAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	a := newAccount(t)
	parameters := []string{"FrontDoor=api", "BridgeUrl=https://bridge.example.com", "ClientCA=" + clientCA(t)}
	first := a.deploy(parameters...)
	groups := len(a.auditGroups())
	a.query("cloudformation", "2010-05-15", "", "Action", "DeleteStack", "StackName", "test")
	a.deleteTable()
	if again := a.deploy(parameters...); again["Store"] != first["Store"] {
		t.Errorf("the stacks have the stores %s and %s", first["Store"], again["Store"])
	}
	if all := a.auditGroups(); groups == 0 || len(all) != 2*groups {
		t.Errorf("with the next stack there are %v", all)
	}
}

// deleteTable deletes the table of a deleted stack by the commands of docs/guide/aws.md.
func (a account) deleteTable() {
	a.t.Helper()
	usePython(a.t)
	row := regexp.MustCompile("\n\\| table \\|.*").FindString(page(a.t, "docs/guide/aws.md", "## Remove"))
	commands := regexp.MustCompile("`(aws [^`]+)`").FindAllStringSubmatch(row, -1)
	if len(commands) != 2 {
		a.t.Fatalf("docs/guide/aws.md deletes the table by %q", row)
	}
	for _, command := range commands {
		args := strings.Fields(command[1])
		if out, err := exec.CommandContext(a.t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			a.t.Fatalf("%s: %v\n%s", command[1], err, out)
		}
	}
}
