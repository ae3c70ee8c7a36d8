/** Page after the sign-in: own jobs, what needs attention, who uses what, when the own jobs start. */
import { useCaller } from "@/api/caller";
import { type DeviceCounts, getHome, type HomeView } from "@/api/generated";
import { usePolled } from "@/api/polling";
import { Clock } from "@/components/Clock";
import { Failed } from "@/components/Failed";
import { SkeletonRows } from "@/components/SkeletonRows";
import { PageStale } from "@/components/Stale";
import { usePageTitle } from "@/components/usePageTitle";
import { counted } from "@/lib/resources";
import { Attention } from "./Attention";
import classes from "./HomePage.module.css";
import { MyJobs } from "./MyJobs";
import { StartJob } from "./StartJob";
import { Waiting } from "./Waiting";
import { WhoUses } from "./WhoUses";
import { partsOf } from "./words";

const KEY = ["home"];
const SECONDS = 5;

export function HomePage() {
  usePageTitle("Home");
  const caller = useCaller().data;
  const { data, error, refetch } = usePolled<HomeView>({
    key: KEY,
    fetch: (signal) => getHome({ signal, throwOnError: true }),
    seconds: SECONDS,
  });
  const home = caller === undefined ? undefined : data;
  return (
    <>
      <PageStale of={KEY} />
      <div className={classes.top}>
        <h1>Home</h1>
        {home === undefined ? null : <Devices home={home} />}
      </div>
      {data === undefined && error !== null ? <Failed error={error} retry={() => void refetch()} /> : null}
      {home === undefined && error === null ? <SkeletonRows label="The page is loading" /> : null}
      {home === undefined ? null : (
        <Clock of={KEY} everySeconds={10}>
          <Panels home={home} isAlone={caller?.is_alone === true} owner={caller?.name} />
        </Clock>
      )}
    </>
  );
}

/** The small form, of one person on one machine, has no people, no projects and no empty panels. */
function Panels({ home, isAlone, owner }: { home: HomeView; isAlone: boolean; owner: string | undefined }) {
  const { jobs, attention, projects, others, devices } = home;
  const isSmall = isAlone && home.nodes < 2;
  return (
    <div className={classes.panels}>
      <MyJobs jobs={jobs} owner={isAlone ? undefined : owner} />
      {isSmall && attention.length === 0 ? null : <Attention notices={attention} />}
      {isAlone && projects.length < 2 ? null : <WhoUses projects={projects} others={others} total={devices.total} />}
      {isSmall && jobs.waiting.length === 0 ? null : <Waiting jobs={jobs} />}
      {isSmall ? <StartJob /> : null}
    </div>
  );
}

/** Numbers of devices, which are the legend of the bar below. */
function Devices({ home: { devices, projects, nodes } }: { home: HomeView }) {
  const waiting = projects.reduce((sum, { queued }) => sum + queued, 0);
  return (
    <>
      <ul className={classes.figures}>
        {partsOf(devices).map(({ name, kind, count }) => (
          <li key={kind} data-kind={kind}>
            <strong>{count}</strong> {name}
          </li>
        ))}
        {waiting === 0 ? null : (
          <li>
            <strong>{waiting}</strong> {waiting === 1 ? "job waits" : "jobs wait"}
          </li>
        )}
        <li className={classes.whole}>
          {nodes === 0
            ? "No node is registered: nothing can start."
            : `${counted(devices.total, "device")} on ${counted(nodes, "node")}`}
        </li>
      </ul>
      <Bar devices={devices} />
    </>
  );
}

function Bar({ devices }: { devices: DeviceCounts }) {
  return (
    <div className={classes.bar} aria-hidden>
      {partsOf(devices).map(({ kind, percent }) => (
        <span key={kind} data-kind={kind} style={{ width: `${percent}%` }} />
      ))}
    </div>
  );
}
