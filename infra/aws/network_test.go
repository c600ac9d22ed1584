package aws

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Only the load balancer may reach the bridge's port. Only functions and other bridges may reach the tunnel port.
func TestWhoReachesWhom(t *testing.T) {
	all := load(t)
	type way struct{ to, ports, from string }
	var ways []way
	ports := func(rule any) string { return fmt.Sprint(get(rule, "FromPort"), "-", get(rule, "ToPort")) }
	from := func(rule any) string {
		return strings.Join(append(render(get(rule, "SourceSecurityGroupId")), render(get(rule, "CidrIp"))...), " ")
	}
	for id, r := range of(all, "AWS::EC2::SecurityGroup") {
		if !strings.HasPrefix(id, "infra/aws/groups.yaml ") {
			t.Errorf("%s is not in groups.yaml", id)
		}
		rules, _ := r.Properties["SecurityGroupIngress"].([]any)
		for _, rule := range rules {
			ways = append(ways, way{strings.TrimPrefix(id, "infra/aws/groups.yaml "), ports(rule), from(rule)})
		}
		if r.Properties["SecurityGroupEgress"] == nil {
			t.Errorf("%s leaves what may go out to AWS's default", id)
		}
	}
	for id, r := range of(all, "AWS::EC2::SecurityGroupIngress") {
		if !strings.HasPrefix(id, "infra/aws/groups.yaml ") {
			t.Errorf("%s is not in groups.yaml", id)
		}
		ways = append(ways, way{
			strings.Trim(render(r.Properties["GroupId"])[0], "${}"), ports(r.Properties), from(r.Properties),
		})
	}
	want := []way{
		{"Bridge.GroupId", "8080-8080", "${LoadBalancer.GroupId}"},
		{"Bridge.GroupId", "8081-8081", "${LoadBalancer.GroupId}"},
		{"Bridge.GroupId", "8444-8444", "${Bridge.GroupId}"},
		{"Bridge.GroupId", "8444-8444", "${Functions.GroupId}"},
		{"LoadBalancer", "443-443", "${AllowedCidr}"},
	}
	slices.SortFunc(ways, func(a, b way) int { return strings.Compare(a.to+a.ports+a.from, b.to+b.ports+b.from) })
	if !slices.Equal(ways, want) {
		t.Errorf("ways in:\n  %v\nwant\n  %v", ways, want)
	}
	for _, rule := range all["infra/aws/groups.yaml"].Resources["LoadBalancer"].Properties["SecurityGroupEgress"].([]any) {
		if ports(rule) != "8080-8081" {
			t.Errorf("the load balancer reaches %s", ports(rule))
		}
	}
	for id, r := range of(all, "AWS::ElasticLoadBalancingV2::TargetGroup") {
		if r.Properties["TargetType"] != "lambda" && fmt.Sprint(r.Properties["Port"]) != "8080" {
			t.Errorf("%s leads to port %v", id, r.Properties["Port"])
		}
	}
	for what, want := range map[string]string{
		fmt.Sprint(
			render(
				get(all["template.yaml"].Resources["BridgeService"].Properties["Parameters"],
					"Group"))): "[${Groups.Outputs.Bridge}]",
		fmt.Sprint(
			render(
				get(get(all["template.yaml"].Resources["ProxyFunction"].Properties, "VpcConfig", "Fn::If").([]any)[1],
					"SecurityGroupIds"))): "[${Groups.Outputs.Functions}]",
		fmt.Sprint(
			render(
				get(all["template.yaml"].Resources["LoadBalancer"].Properties["Parameters"],
					"Group"))): "[${Groups.Outputs.LoadBalancer}]",
	} {
		if what != want {
			t.Errorf("a group is %s, want %s", what, want)
		}
	}
}

// Bridges must be reachable by the DNS name and port that they are configured with.
func TestTunnelPort(t *testing.T) {
	all := load(t)
	resources := all["infra/aws/bridge.yaml"].Resources
	names, port := resources["Names"].Properties, resources["TunnelPort"].Properties
	service := resources["Service"].Properties
	container := resources["Task"].Properties["ContainerDefinitions"].([]any)[0]
	env := map[string]string{}
	for _, v := range get(container, "Environment").([]any) {
		if name, ok := get(v, "Name").(string); ok {
			env[name] = strings.Join(render(get(v, "Value")), "")
		}
	}
	if env["CLUSTERPASS_TUNNEL_LISTEN"] != ":8444" ||
		!strings.Contains(fmt.Sprint(get(container, "PortMappings")), "ContainerPort:8444") {
		t.Errorf("the task listens on %q, and opens %v", env["CLUSTERPASS_TUNNEL_LISTEN"], get(container, "PortMappings"))
	}
	name := fmt.Sprintf("%s.%s:8444", port["Name"], render(names["Name"])[0])
	if env["CLUSTERPASS_PEERS"] != name || "https://"+name != render(all["template.yaml"].Outputs["TunnelUrl"].Value)[0] {
		t.Errorf("a bridge is %s, and looks for %s", name, env["CLUSTERPASS_PEERS"])
	}
	if got := fmt.Sprint(render(names["Vpc"]), render(port["NamespaceId"]),
		render(
			get(service["ServiceRegistries"].([]any)[0], "RegistryArn"))); got != "[${Vpc}] [${Names}] [${TunnelPort.Arn}]" {
		t.Errorf("the names are %s", got)
	}
	records := get(port["DnsConfig"], "DnsRecords").([]any)
	if get(port["DnsConfig"], "RoutingPolicy") != "MULTIVALUE" || len(records) != 1 || get(records[0], "Type") != "A" {
		t.Errorf("a question is answered by %v", port["DnsConfig"])
	}
	if given := all["template.yaml"].Resources["BridgeService"].Properties["Parameters"]; fmt.Sprint(
		render(get(given, "Vpc"))) != fmt.Sprint(
		render(get(all["template.yaml"].Resources["Groups"].Properties["Parameters"], "Vpc"))) {
		t.Error("the names are of another network than the groups")
	}
}

// TestWhereThingsRun covers the effect of the network parameters on functions and the bridge.
func TestWhereThingsRun(t *testing.T) {
	tmpl := load(t)["template.yaml"]
	const domain = "DomainName=clusterpass.example.com"
	for _, tt := range []struct {
		parameters                   []string
		made, private, balancer, api bool
	}{
		{[]string{domain}, true, true, true, false},
		{[]string{domain, "NatGateways=0"}, true, false, true, false},
		{
			[]string{domain, "VpcId=vpc-1", "PublicSubnetIds=a,b", "PrivateSubnetIds=c,d", "NatGateways=0"}, false, true, true,
			false,
		},
		{[]string{domain, "VpcId=vpc-1", "PublicSubnetIds=a,b"}, false, false, true, false},
		{[]string{domain, "FrontDoor=api"}, true, true, true, true},
		{[]string{"FrontDoor=api", "BridgeUrl=https://bridge.example.com"}, false, false, false, true},
	} {
		g := tmpl.with(tt.parameters...)
		exists := func(id string) bool {
			c := g.Resources[id].Condition
			return c == "" || g.condition(c)
		}
		inNetwork := get(g.value(g.Resources["ProxyFunction"].Properties["VpcConfig"]), "SubnetIds") != nil
		public := get(g.value(g.Resources["BridgeService"].Properties["Parameters"]), "PublicAddress") == "ENABLED"
		if exists("Network") != tt.made || inNetwork != tt.private || exists("RunInVpc") != tt.private ||
			exists("LoadBalancer") != tt.balancer ||
			exists("BridgeService") != tt.balancer || exists("RestApi") != tt.api ||
			exists("Routes") != (tt.balancer && !tt.api) || tt.balancer && public == tt.private {
			t.Errorf("%v: network %t, functions in it %t, balancer %t, API %t, bridge public %t", tt.parameters,
				exists("Network"), inNetwork, exists("LoadBalancer"), exists("RestApi"), public)
		}
	}
}

// TestTwoZones: the loss of one zone does not affect the other.
func TestTwoZones(t *testing.T) {
	all := load(t)
	resources := all["infra/aws/network.yaml"].Resources
	outputs := all["infra/aws/network.yaml"].Outputs
	for _, kind := range []string{"Public", "Private"} {
		for i, zone := range []string{"A", "B"} {
			choice, _ := get(resources[kind+zone].Properties["AvailabilityZone"], "Fn::If").([]any)
			if len(choice) != 3 || choice[0] != "HasZones" || get(choice[1], "Ref") != "Zone"+zone {
				t.Fatalf("%s%s is in zone %v", kind, zone, choice)
			}
			selected, _ := get(choice[2], "Fn::Select").([]any)
			if len(selected) != 2 || fmt.Sprint(selected[0]) != strconv.Itoa(i) {
				t.Errorf("%s%s is in zone %v of the region", kind, zone, selected)
			}
			if !strings.Contains(fmt.Sprint(outputs[kind+"Subnets"].Value), kind+zone) {
				t.Errorf("%s%s is not where anything runs: %v", kind, zone, outputs[kind+"Subnets"].Value)
			}
		}
	}
	service := all["infra/aws/bridge.yaml"].Resources["Service"].Properties
	if got := render(get(service, "NetworkConfiguration", "AwsvpcConfiguration", "Subnets")); got[0] != "${Subnets}" ||
		service["AvailabilityZoneRebalancing"] != "ENABLED" {
		t.Errorf("the bridges are in %v, and not spread", got)
	}
	if got := fmt.Sprint(*all["template.yaml"].Parameters["BridgeMinTasks"].Default); got != "2" {
		t.Errorf("by default there are %s bridges", got)
	}
}
