package agentserver

// Headers and paths of the protocol between bridge and agent. In streams that it opens, the bridge sends HTTP/1.1:
// CONNECT to CLUSTER:443, PUT of an Announcement, or GET of the agent's credential.
const (
	AgentHeader = "Clusterpass-Agent" // from the agent: its ID, a UUID for each process
	// from the agent: IDs of replicas that it is connected to; they respond with 409
	HaveHeader     = "Clusterpass-Have"
	ReplicaHeader  = "Clusterpass-Replica"  // from the bridge: the ID of the replica
	ReplicasHeader = "Clusterpass-Replicas" // from the bridge: the number of replicas
	// AnnouncementPath is the path at which an agent accepts an Announcement.
	AnnouncementPath = "/announcement"
	// CredentialPath is the path at which an agent returns its current credential.
	CredentialPath = "/credential"
)

// Announcement is a message from a replica to its agents.
type Announcement struct { // total number
	Replicas int  `json:"replicas"` // the sending replica is shutting down
	Draining bool `json:"draining"` // this one is about to end
}
