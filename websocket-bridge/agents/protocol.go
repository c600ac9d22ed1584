package agents

// What bridge and agent say to each other beside the tunnel's streams, in which the bridge sends HTTP/1.1: CONNECT to CLUSTER:443,
// PUT of an Announcement, and GET of the agent's credential.
const (
	AgentHeader    = "Clusterpass-Agent"    // of the agent: its id, a UUID of each process
	HaveHeader     = "Clusterpass-Have"     // of the agent: ids of replicas that it is connected to; they answer 409
	ReplicaHeader  = "Clusterpass-Replica"  // of the bridge: the replica's id
	ReplicasHeader = "Clusterpass-Replicas" // of the bridge: how many replicas there are
	// AnnouncementPath is where an agent takes an Announcement.
	AnnouncementPath = "/announcement"
	// CredentialPath is where an agent says the credential that it has now to a replica that it has come to with one before.
	CredentialPath = "/credential"
)

// Announcement is what a replica of the bridge says to the agents that are connected to it.
type Announcement struct {
	Replicas int  `json:"replicas"` // in all
	Draining bool `json:"draining"` // this one is about to end
}
