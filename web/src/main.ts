import { mount } from "svelte";
import App from "./App.svelte";
import { followSystem } from "./lib/theme";
import "./app.css";

followSystem();
const target = document.getElementById("app");
if (target) mount(App, { target });
